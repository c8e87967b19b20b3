package chaos

import (
	"context"
	"database/sql"
	"flag"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"pulseloop/bot/telegram/telegramtest"
	"pulseloop/e2e/e2etest"
	"pulseloop/pulse"
)

var faultsFlag = flag.Float64("chaos.faults", 0.5, "share of the calls to a disturbed chat that meet a fault")

// deliveryAgents show progress for a while; the last one asks a question.
const deliveryAgents = `
repeat_last: true
iterations:
  - - say: "Reached: {{goal}}"
    - signal: COMPLETE
sessions:
  working:
    repeat_last: true
    iterations:
      - - run: "sleep 0.3"
        - run: "sleep 0.3"
        - say: "The first part is there."
        - signal: CONTINUE
      - - run: "sleep 0.3"
        - run: "sleep 0.3"
        - say: "Reached: {{goal}}"
        - signal: COMPLETE
  asking:
    repeat_last: true
    iterations:
      - - say: "Left or right?"
        - signal: BLOCKED
      - - say: "Reached: {{goal}}"
        - signal: COMPLETE
`

// deliveryLimit is how long a message may take to arrive under faults, and the ones before it in its chat.
func deliveryLimit() time.Duration {
	if *longFlag {
		return 10 * time.Minute
	}
	return 2 * time.Minute
}

// errand is one goal of one chat, as the people in it saw it.
type errand struct {
	tag  string
	said time.Time
}

// correspondent has errands, one after the other.
type correspondent struct {
	*e2etest.Person
	o    *oracle
	calm bool     // its calls meet no fault
	done []errand // all but the last were heard of
}

// errands sends goals until ctx ends, each when the one before was told of; the last one is waited for as well.
func (c *correspondent) errands(ctx context.Context, t *testing.T, most int) {
	for n := 0; n < most && ctx.Err() == nil; n++ {
		e := errand{tag: c.o.tag(), said: time.Now()}
		text := "/pulse working " + e.tag
		c.o.say(said{Tag: e.tag, Kind: "goal", Chat: c.Chat.ID, Who: c.FirstName, Text: text})
		c.Say(text)
		wait, cancel := context.WithTimeout(t.Context(), deliveryLimit())
		_, err := c.Chat.AwaitMessage(wait, func(m telegramtest.Message) bool {
			return strings.HasPrefix(m.Text, "✅") && strings.Contains(m.Text, e.tag)
		})
		cancel()
		c.done = append(c.done, e)
		if err != nil {
			t.Errorf("%s did not hear of the outcome of %s within %s", c.FirstName, e.tag, deliveryLimit())
			return
		}
	}
}

// TestDelivery is F13: the platform misbehaves for half of the chats in every way it knows, and the outcome of everything
// arrives, in time for the others.
func TestDelivery(t *testing.T) {
	t.Parallel()
	seed := newSeed(t)
	e2etest.Databases(t, func(t *testing.T, database string) { deliveryOf(t, database, seed) })
}

func deliveryOf(t *testing.T, database string, seed uint64) {
	people, storm, sky := 6, 4*time.Second, &sky{dice: dice(seed, 1), hang: time.Second, longest: 2, hits: map[string]int{}, spared: map[int64]bool{0: true}}
	if *longFlag {
		people, storm, sky.hang, sky.longest = 12, 4*time.Minute, time.Minute, 30
	}
	tg, o := telegramtest.Start(t, telegramtest.Options{}), newOracle(t)
	o.watch(t, tg)
	p := e2etest.Start(t, e2etest.Options{Database: database, Script: deliveryAgents, Telegram: tg,
		Projects: map[string]*e2etest.Repository{"my-app": e2etest.Repo(t)}, Config: fmt.Sprintf("daemon: {slots: %d}\n", people)})
	var all []*correspondent
	for i := range people {
		c := &correspondent{Person: e2etest.NewPerson(t, tg, fmt.Sprintf("P%d", i)), o: o, calm: i%2 == 0}
		c.Say("/pair " + codeFor(t, p, i))
		sky.spared[c.Chat.ID] = c.calm || i == 1
		all = append(all, c)
	}
	for _, c := range all {
		c.Hears("Paired. Hello")
	}
	blocked := all[1] // meets no fault, but blocks the bot
	round(t, t.Context(), 1, all)

	began := time.Now()
	tg.Weather(sky.fault)
	ctx, cancel := context.WithTimeout(t.Context(), storm)
	defer cancel()
	var wg sync.WaitGroup
	wg.Go(func() { blocked.goesAway(ctx, t, tg) })
	round(t, ctx, 1000, slices.DeleteFunc(slices.Clone(all), func(c *correspondent) bool { return c == blocked }))
	wg.Wait()
	tg.Weather(nil)
	raged := time.Since(began)
	if n := refusals(tg, blocked.Chat.ID); n != 1 {
		t.Errorf("a chat that blocks the bot was asked %d times", n)
	}
	blocked.Block(false)
	blocked.Say("/help")
	settled(t, p)

	db := p.DB()
	times := outcomes(t, db, tg, database)
	for _, c := range all {
		c.toldInOrder(t, db, tg, times)
	}
	before := spread{}
	during, disturbed := spread{}, spread{}
	for _, c := range all {
		for i, e := range c.done {
			took := times[e.tag].told.Sub(times[e.tag].decided)
			switch {
			case c == blocked && i > 0:
			case i == 0:
				before = append(before, took)
			case c.calm:
				during = append(during, took)
			default:
				disturbed = append(disturbed, took)
			}
		}
	}
	t.Logf("%d faults in %s: %v; %d named waits, all kept. From a decision to its message: undisturbed %v; meanwhile, in chats without faults %v; in those with %v.",
		sky.total(), raged.Round(time.Second), sky.hits, retryAfterObeyed(t, tg), before, during, disturbed)
	// Generous, because this machine may have other things to do; a chat that waited for another's punishment would wait for its end.
	if len(during) == 0 || slices.Max(during) > 3*slices.Max(before)+20*time.Second {
		t.Errorf("chats without faults were told after %v, before it was %v", during, before)
	}
}

// round has everybody do errands at once.
func round(t *testing.T, ctx context.Context, most int, all []*correspondent) {
	var wg sync.WaitGroup
	for _, c := range all {
		wg.Go(func() { c.errands(ctx, t, most) })
	}
	wg.Wait()
}

func codeFor(t *testing.T, p *e2etest.Pulse, i int) string {
	if i == 0 {
		return p.PairCode()
	}
	r, err := p.Client().Pair(e2etest.Context(t), pulse.RoleOperator)
	if err != nil {
		t.Fatal(err)
	}
	return r.Code
}

// sky decides which calls meet which fault. It runs under the server's lock.
type sky struct {
	dice    *rand.Rand
	spared  map[int64]bool
	hang    time.Duration
	longest int // retry_after
	hits    map[string]int
}

func (s *sky) fault(call telegramtest.Call) *telegramtest.Fault {
	if s.spared[call.ChatID] || call.Method != "sendMessage" && call.Method != "editMessageText" || s.dice.Float64() >= *faultsFlag {
		return nil
	}
	f, name := &telegramtest.Fault{}, ""
	switch s.dice.IntN(9) {
	case 0, 1:
		f.RetryAfter, name = 1+s.dice.IntN(s.longest), "429"
	case 2:
		f.HTML, name = true, "page of a proxy"
	case 3:
		f.Status, name = 500+s.dice.IntN(4), "5xx"
	case 4:
		f.Cut, name = true, "cut before"
	case 5:
		f.Cut, f.Applied, name = true, true, "cut after"
	case 6:
		f.Hang, f.HangFor, name = true, s.hang, "hang"
	case 7:
		f.Hang, f.HangFor, f.Applied, name = true, s.hang, true, "hang after"
	case 8:
		if call.Method != "editMessageText" {
			return nil
		}
		f.Status, f.Description, name = 400, "Bad Request: message is not modified: the new content is the same", "not modified"
	}
	s.hits[name]++
	return f
}

func (s *sky) total() (n int) {
	for _, hits := range s.hits {
		n += hits
	}
	return n
}

// goesAway says a goal, blocks the bot before the outcome, and is not heard of until ctx ends.
func (c *correspondent) goesAway(ctx context.Context, t *testing.T, tg *telegramtest.Server) {
	e := errand{tag: c.o.tag(), said: time.Now()}
	text := "/pulse working " + e.tag
	c.o.say(said{Tag: e.tag, Kind: "goal", Chat: c.Chat.ID, Who: c.FirstName, Text: text})
	c.Say(text)
	c.Hears("🚀")
	c.Block(true)
	c.done = append(c.done, e)
	if err := tg.Await(e2etest.Context(t), func() bool { return refusals(tg, c.Chat.ID) > 0 }); err != nil {
		t.Errorf("nothing was sent to a chat that blocks the bot: %v", err)
	}
	<-ctx.Done()
}

// refusals is how often a chat said that it takes nothing.
func refusals(tg *telegramtest.Server, chat int64) (n int) {
	for _, k := range tg.Calls() {
		if k.ChatID == chat && k.Status == 403 {
			n++
		}
	}
	return n
}

// settled waits until nothing is left to send.
func settled(t *testing.T, p *e2etest.Pulse) {
	t.Helper()
	const left = "SELECT count(*) FROM notifications WHERE status IN ('queued', 'sending')"
	ctx, cancel := context.WithTimeout(t.Context(), deliveryLimit())
	defer cancel()
	db := p.DB()
	n := 0
	if !until(ctx, func() bool { return db.QueryRowContext(t.Context(), left).Scan(&n) == nil && n == 0 }) {
		t.Errorf("%d messages were not delivered within %s of the last fault", n, deliveryLimit())
	}
}

// outcome is when a goal's end was decided, and when its chat was told, first.
type outcome struct{ decided, told time.Time }

// outcomes are those of every goal, by its tag.
func outcomes(t *testing.T, db *sql.DB, tg *telegramtest.Server, database string) map[string]outcome {
	t.Helper()
	micros := "created_at"
	if database != "" {
		micros = "CAST(extract(epoch FROM created_at) * 1000000 AS bigint)"
	}
	out := map[string]outcome{}
	rows, err := db.QueryContext(t.Context(), "SELECT body, "+micros+" FROM notifications WHERE kind = 'final'")
	if err != nil {
		t.Fatal(err)
	}
	defer rows.Close()
	for rows.Next() {
		var body string
		var at int64
		if err := rows.Scan(&body, &at); err != nil {
			t.Fatal(err)
		}
		out[tagShape.FindString(body)] = outcome{decided: time.UnixMicro(at)}
	}
	for _, k := range tg.Calls() {
		if text := k.Params["text"]; k.Effect && k.Method == "sendMessage" && strings.HasPrefix(text, "✅") {
			tag := tagShape.FindString(text)
			if o := out[tag]; o.told.IsZero() {
				o.told = k.At
				out[tag] = o
			}
		}
	}
	return out
}

// toldInOrder wants the outcome of each errand in its chat, no sign of work after it, and no more live messages than iterations.
func (c *correspondent) toldInOrder(t *testing.T, db *sql.DB, tg *telegramtest.Server, times map[string]outcome) {
	t.Helper()
	shown := map[string]string{} // live messages and the errands they belong to
	for i, e := range c.done {
		told := times[e.tag].told
		if told.IsZero() {
			t.Errorf("%s was never told of %s", c.FirstName, e.tag)
			continue
		}
		live := 0
		for _, m := range c.Chat.FromBot() {
			if m.Date.Before(e.said) || i+1 < len(c.done) && !m.Date.Before(c.done[i+1].said) || !strings.HasPrefix(first(m), "⚙️") {
				continue
			}
			live++
			shown[fmt.Sprint(m.ID)] = e.tag
			if m.Date.After(told) {
				t.Errorf("%s saw %q after the outcome of %s", c.FirstName, first(m), e.tag)
			}
		}
		iterations := 0
		row := db.QueryRowContext(t.Context(), "SELECT count(*) FROM pulse_iterations i JOIN pulse_sessions s ON s.id = i.session_id WHERE s.goal LIKE '%"+e.tag+"%'")
		if err := row.Scan(&iterations); err != nil {
			t.Fatal(err)
		}
		if live > iterations {
			t.Errorf("%s saw %d live messages for the %d iterations of %s", c.FirstName, live, iterations, e.tag)
		}
	}
	for _, k := range tg.CallsOf("editMessageText") {
		if tag := shown[k.Params["message_id"]]; k.ChatID == c.Chat.ID && k.Effect && tag != "" && strings.HasPrefix(k.Params["text"], "⚙️") && k.At.After(times[tag].told) {
			t.Errorf("%s saw %q after the outcome of %s", c.FirstName, k.Params["text"], tag)
		}
	}
}

// first is how a message read when it was posted.
func first(m telegramtest.Message) string {
	if len(m.Edits) > 0 {
		return m.Edits[0]
	}
	return m.Text
}

// retryAfterObeyed wants no call before the time that a refusal named: none at all to a chat that was to be left alone, no
// edit where an edit was refused. It answers how many refusals there were.
func retryAfterObeyed(t *testing.T, tg *telegramtest.Server) (n int) {
	t.Helper()
	calls := tg.Calls()
	for i, c := range calls {
		var seconds int
		if c.Status != 429 {
			continue
		}
		if _, err := fmt.Sscanf(c.Error, "Too Many Requests: retry after %d", &seconds); err != nil {
			t.Fatalf("%q: %v", c.Error, err)
		}
		n++
		for _, k := range calls[i+1:] {
			if k.ChatID != c.ChatID || k.Method != "editMessageText" && (k.Method != "sendMessage" || c.Method == "editMessageText") {
				continue
			}
			if waited := k.At.Sub(c.At); waited < time.Duration(seconds)*time.Second {
				t.Errorf("%s came %s after a refusal of %s that named %d s", k.Method, waited, c.Method, seconds)
			}
		}
	}
	return n
}

// spread is how long things took, as people read it.
type spread []time.Duration

func (s spread) String() string {
	if len(s) == 0 {
		return "(none)"
	}
	sorted := slices.Sorted(slices.Values(s))
	return fmt.Sprintf("(%d: median %s, worst %s)", len(s), sorted[len(s)/2].Round(time.Millisecond), sorted[len(s)-1].Round(time.Millisecond))
}

// TestLongMessageSurvivesAKill ends the program between the parts of a long message: the parts that are there are not sent
// again, what the platform asked for is obeyed by the next life too, and a reply to any part is about what the message is about.
func TestLongMessageSurvivesAKill(t *testing.T) {
	t.Parallel()
	e2etest.Databases(t, func(t *testing.T, database string) {
		tg := telegramtest.Start(t, telegramtest.Options{})
		p := e2etest.Start(t, e2etest.Options{Database: database, Script: deliveryAgents, Telegram: tg,
			Projects: map[string]*e2etest.Repository{"my-app": e2etest.Repo(t)}})
		ann := e2etest.NewPerson(t, tg, "Ann")
		ann.Pair(p.PairCode())
		ann.Say("/pulse asking tag00001q " + strings.Repeat("and mind this mile of the way, ", 110))
		ann.Hears("⏸️", "Left or right?")
		refused := false
		tg.Weather(func(k telegramtest.Call) *telegramtest.Fault {
			if text := k.Params["text"]; refused || k.Method != "sendMessage" || strings.HasPrefix(text, "Prompt of") {
				return nil
			}
			refused = true
			return &telegramtest.Fault{RetryAfter: 4}
		})
		asked := len(ann.Chat.FromBot())
		ann.Say("/prompt")
		db, holds := p.DB(), 0
		e2etest.Await(t, "the refusal of the second part to be on record", func() bool {
			return db.QueryRowContext(t.Context(), "SELECT count(*) FROM chat_holds").Scan(&holds) == nil && holds == 1
		})
		p.Kill()
		p.Up()
		settled(t, p)
		parts := ann.Chat.FromBot()[asked:]
		var whole strings.Builder
		for i, m := range parts {
			whole.WriteString(m.Text)
			if strings.HasPrefix(m.Text, "Prompt of") != (i == 0) {
				t.Errorf("part %d reads %.60q", i, m.Text)
			}
		}
		if n := strings.Count(strings.Join(strings.Fields(whole.String()), " "), "mind this mile"); len(parts) < 2 || n != 110 {
			t.Errorf("the prompt came as %d messages with %d miles", len(parts), n)
		}
		if n := retryAfterObeyed(t, tg); n != 1 {
			t.Errorf("%d calls were refused", n)
		}
		ann.Reply(parts[len(parts)-1], "left, at every mile")
		ann.Hears("✅", "tag00001q")
	})
}

// TestKilledAroundTheCall is F17: the program is killed while it asks the platform to post a question, before that was done, or
// after. The question is there at least once, and is answered once, whichever copy the answers are for.
func TestKilledAroundTheCall(t *testing.T) {
	t.Parallel()
	around := func(t *testing.T, database string, applied bool, copies int) {
		tg := telegramtest.Start(t, telegramtest.Options{})
		p := e2etest.Start(t, e2etest.Options{Database: database, Script: deliveryAgents, Telegram: tg,
			Projects: map[string]*e2etest.Repository{"my-app": e2etest.Repo(t)}})
		ann := e2etest.NewPerson(t, tg, "Ann")
		ann.Pair(p.PairCode())
		met := make(chan struct{})
		tg.Weather(func(k telegramtest.Call) *telegramtest.Fault {
			select {
			case <-met:
				return nil
			default:
			}
			if k.Method != "sendMessage" || !strings.HasPrefix(k.Params["text"], "⏸️") {
				return nil
			}
			close(met)
			return &telegramtest.Fault{Hang: true, Applied: applied}
		})
		ann.Say("/pulse asking tag00001q")
		select {
		case <-met:
		case <-e2etest.Context(t).Done():
			t.Fatal("no question was posted")
		}
		p.Kill()
		p.Up()
		var asked []telegramtest.Message
		e2etest.Await(t, "every copy of the question", func() bool {
			asked = slices.DeleteFunc(ann.Chat.FromBot(), func(m telegramtest.Message) bool { return !strings.HasPrefix(m.Text, "⏸️") })
			return len(asked) >= copies
		})
		settled(t, p)
		for _, m := range asked {
			ann.Chat.Reply(ann.User, m.ID, "left, it is")
		}
		if _, err := ann.Chat.AwaitMessage(e2etest.Context(t), func(m telegramtest.Message) bool { return strings.HasPrefix(m.Text, "✅") }); err != nil {
			t.Fatal(err)
		}
		settled(t, p)
		if n := p.Count("SELECT count(*) FROM audit WHERE action = 'answer'"); n != 1 {
			t.Errorf("the question was answered %d times", n)
		}
		if n := ann.Heard("⏸️"); n != copies {
			t.Errorf("the question came %d times, want %d", n, copies)
		}
	}
	for name, applied := range map[string]bool{"before": false, "after": true} {
		copies := 1
		if applied {
			copies = 2 // nobody can know
		}
		t.Run(name+" on SQLite", func(t *testing.T) { t.Parallel(); around(t, "", applied, copies) })
		if *longFlag { // a claim on a message ends after 35 s there
			t.Run(name+" on PostgreSQL", func(t *testing.T) { t.Parallel(); around(t, e2etest.Postgres(t), applied, copies) })
		}
	}
}
