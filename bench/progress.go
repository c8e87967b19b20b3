package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"pulseloop/bot/telegram/telegramtest"
)

const (
	steps      = 80                     // of each agent
	stepEvery  = 250 * time.Millisecond // 20 s of work
	quietAfter = 5 * time.Second        // how long after the last answer edits are looked for
)

// agentScript is an agent that takes a step every quarter of a second, and
// writes down when it did.
func agentScript(marks string) string {
	var b strings.Builder
	b.WriteString("iterations:\n  - - think: begin\n")
	for i := range steps {
		fmt.Fprintf(&b, "    - run: \": step %d; date +%%s%%N >%s/{{goal}}.%d\"\n    - sleep: %s\n", i, marks, i, stepEvery)
	}
	b.WriteString("    - say: \"That was all.\"\n    - signal: COMPLETE\n")
	return b.String()
}

// follower is a chat in which a goal is followed.
type follower struct {
	goal string
	chat *telegramtest.Chat
	user *telegramtest.User
}

// progressInChats lets an agent work for each of several chats, some private,
// one a group, at a Telegram that enforces its limits, and looks at every
// call. punish has it answer some of the calls with a retry_after besides.
func progressInChats(punish bool) program {
	return func(ctx context.Context, _ []string) (sample, error) {
		tg, env, err := telegram(telegramtest.RealLimits)
		if err != nil {
			return nil, err
		}
		defer tg.Close()
		dir, err := benchDir()
		if err != nil {
			return nil, err
		}
		var all []follower
		var people []*telegramtest.User
		for i := range 4 {
			u := tg.User("P" + strconv.Itoa(i))
			f := follower{goal: "g" + strconv.Itoa(i), user: u, chat: u.Private()}
			if i == 3 {
				f.chat = tg.Group("Team", false)
			}
			people, all = append(people, u), append(all, f)
		}
		repo, err := os.MkdirTemp("", "bench-repo-")
		if err != nil {
			return nil, fmt.Errorf("make folder: %w", err)
		}
		defer os.RemoveAll(repo)
		s, err := openStore(ctx)
		if err != nil {
			return nil, err
		}
		_, err = furnish(ctx, s, repo, people...)
		if err := errors.Join(err, s.Close()); err != nil {
			return nil, err
		}
		marks, script := filepath.Join(dir, "marks"), filepath.Join(dir, "script.yaml")
		if err := errors.Join(os.Mkdir(marks, 0o700), os.WriteFile(script, []byte(agentScript(marks)), 0o600)); err != nil {
			return nil, fmt.Errorf("write the agent's script: %w", err)
		}
		p, err := newProduct("up", dir, append(env, "PULSE_SCRIPT="+script, "PULSE_DAEMON_SLOTS=4")...)
		if err != nil {
			return nil, err
		}
		if err := p.start(ctx); err != nil {
			return nil, err
		}
		defer p.stop()
		if err := follow(ctx, tg, all, punish); err != nil {
			return nil, fmt.Errorf("%w\n%s", err, p.output())
		}
		return judge(tg.Calls(), all, marks)
	}
}

// follow states the goals and waits for their ends.
func follow(ctx context.Context, tg *telegramtest.Server, all []follower, punish bool) error {
	for _, f := range all {
		f.chat.Say(f.user, "/pulse "+f.goal)
	}
	ctx, cancel := context.WithTimeout(ctx, 2*time.Minute)
	defer cancel()
	if punish {
		go func() {
			for i := 0; ; i++ {
				select {
				case <-ctx.Done():
					return
				case <-time.After(1500 * time.Millisecond):
					tg.Inject(telegramtest.Fault{ChatID: all[i%len(all)].chat.ID, RetryAfter: 1 + i%3})
				}
			}
		}()
	}
	for _, f := range all {
		if _, err := f.chat.AwaitMessage(ctx, isFinal); err != nil {
			return fmt.Errorf("wait for the end of %s: %w", f.goal, err)
		}
	}
	cancel()
	time.Sleep(quietAfter)
	return nil
}

func isFinal(m telegramtest.Message) bool { return strings.Contains(m.Text, "That was all") }

var stepShown = regexp.MustCompile(`: step ([0-9]+);`)

// judge looks at what was sent to each chat, and when.
func judge(calls []telegramtest.Call, all []follower, marks string) (sample, error) {
	var first, lines, inGroup, private, group []time.Duration
	s := sample{"edits after the final": 0, "of them live": 0, "429": 0, "retry_after": 0, "retry_after not obeyed": 0, "calls": 0}
	for _, f := range all {
		mine := slices.DeleteFunc(slices.Clone(calls), func(c telegramtest.Call) bool {
			return c.ChatID != f.chat.ID || !slices.Contains([]string{"sendMessage", "editMessageText"}, c.Method)
		})
		s["calls"] += float64(len(mine))
		delays, err := shown(mine, filepath.Join(marks, f.goal))
		if err != nil {
			return nil, err
		}
		gaps, all := &private, &lines
		if f.user.Private().ID != f.chat.ID {
			gaps, all = &group, &inGroup
		}
		first, *all = append(first, delays[0]), append(*all, delays...)
		*gaps = append(*gaps, editGaps(mine)...)
		edits, live := editsAfterFinal(mine)
		s["edits after the final"] += float64(edits)
		s["of them live"] += float64(live)
		punished, ignored := obedience(mine)
		s["retry_after"] += float64(punished)
		s["retry_after not obeyed"] += float64(ignored)
		for _, c := range mine {
			if c.Status == 429 {
				s["429"]++
			}
		}
	}
	s["first line ms"], s["first line, slowest chat ms"] = millis(slices.Clone(first[:len(first)-1]))["p50 ms"], millis(first)["max ms"] // the last is the group
	s["line p50 ms"], s["line p99 ms"] = millis(lines)["p50 ms"], millis(lines)["p99 ms"]
	s["group line p50 ms"], s["group line p99 ms"] = millis(inGroup)["p50 ms"], millis(inGroup)["p99 ms"]
	s["edit gap private ms"], s["edit gap group ms"] = millis(private)["p50 ms"], millis(group)["p50 ms"]
	return s, nil
}

// shown is how long after each step a call that was accepted told of it, or
// of a later one.
func shown(calls []telegramtest.Call, mark string) ([]time.Duration, error) {
	type view struct {
		at   time.Time
		step int
	}
	var views []view
	for _, c := range calls {
		if found := stepShown.FindAllStringSubmatch(c.Params["text"], -1); len(found) > 0 && c.Effect {
			n, err := strconv.Atoi(found[len(found)-1][1])
			if err != nil {
				return nil, fmt.Errorf("read what was shown: %w", err)
			}
			views = append(views, view{c.At, n})
		}
	}
	var out []time.Duration
	for i := range steps {
		raw, err := os.ReadFile(mark + "." + strconv.Itoa(i))
		if err != nil {
			return nil, fmt.Errorf("read when a step was taken: %w", err)
		}
		ns, err := strconv.ParseInt(strings.TrimSpace(string(raw)), 10, 64)
		if err != nil {
			return nil, fmt.Errorf("read when a step was taken: %w", err)
		}
		for _, v := range views {
			if v.step >= i {
				out = append(out, max(0, v.at.Sub(time.Unix(0, ns))))
				break
			}
		}
	}
	if len(out) < steps/2 {
		return nil, fmt.Errorf("%d of %d steps were ever shown", len(out), steps)
	}
	return out, nil
}

// editGaps are the times between the edits of a chat while the agent works.
func editGaps(calls []telegramtest.Call) []time.Duration {
	var out []time.Duration
	var last time.Time
	for _, c := range calls {
		if c.Method != "editMessageText" || !stepShown.MatchString(c.Params["text"]) {
			continue
		}
		if !last.IsZero() {
			out = append(out, c.At.Sub(last))
		}
		last = c.At
	}
	return out
}

// editsAfterFinal counts what changes a chat behind the last word, and how
// much of it tells of work, not that it is over.
func editsAfterFinal(calls []telegramtest.Call) (edits, live int) {
	final := slices.IndexFunc(calls, func(c telegramtest.Call) bool {
		return c.Method == "sendMessage" && c.Effect && strings.Contains(c.Params["text"], "That was all")
	})
	for _, c := range calls[final+1:] {
		if c.Method != "editMessageText" {
			continue
		}
		edits++
		if !strings.Contains(c.Params["text"], "ended after") {
			live++
		}
	}
	return edits, live
}

// obedience counts the calls that were told to wait, and those of them after
// which the same kind of call came too soon. A message that is no edit need
// not wait for what an edit was told.
func obedience(calls []telegramtest.Call) (punished, ignored int) {
	for i, c := range calls {
		if c.Status != 429 {
			continue
		}
		punished++
		wait, err := strconv.Atoi(c.Error[strings.LastIndexByte(c.Error, ' ')+1:])
		if err != nil {
			ignored++ // nobody could have obeyed it
			continue
		}
		until := c.At.Add(time.Duration(wait) * time.Second)
		if slices.ContainsFunc(calls[i+1:], func(later telegramtest.Call) bool {
			return later.At.Before(until) && (c.Method == "sendMessage" || later.Method == c.Method)
		}) {
			ignored++
		}
	}
	return punished, ignored
}
