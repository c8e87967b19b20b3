package chaos

import (
	"context"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"strings"
	"sync"
	"testing"
	"time"

	"pulseloop/bot/telegram/telegramtest"
	"pulseloop/e2e/e2etest"
	"pulseloop/pulse"
)

// chatter is people who write all the time, without waiting for what comes back: new goals, and words to the last one.
type chatter struct {
	tg    *telegramtest.Server
	chats []*telegramtest.Chat
	users []*telegramtest.User
	dice  *rand.Rand
	tags  int
}

// goalEvery is how many messages of a chat there are to a goal, the one that starts it included.
const goalEvery = 20

// write says so many things, in random chats. Now and then the platform repeats what it had delivered, or turns a batch round.
func (c *chatter) write(n int) {
	for range n {
		i := c.dice.IntN(len(c.chats))
		text := fmt.Sprintf("mind the tag%06dq", c.tags)
		if c.tags < len(c.chats) {
			i = c.tags
		}
		if c.tags < len(c.chats) || c.dice.IntN(goalEvery) == 0 {
			text = fmt.Sprintf("/pulse goal tag%06dq", c.tags)
		}
		c.tags++
		c.chats[i].Say(c.users[i], text)
	}
	switch c.dice.IntN(5) {
	case 0:
		c.tg.RepeatUpdates(1 + c.dice.IntN(20))
	case 1:
		c.tg.ReverseUpdates()
	}
}

// TestNoUpdateIsLost is R3: the platform delivers updates without end while the program is killed again and again. Each has
// one effect and one reply. (-chaos.long -chaos.kills=1000: 100,000 updates.)
func TestNoUpdateIsLost(t *testing.T) {
	t.Parallel()
	kills, each := 10, 200
	if *longFlag {
		kills, each = *killsFlag, 100
	}
	seed := newSeed(t)
	tg := telegramtest.Start(t, telegramtest.Options{})
	node := e2etest.Start(t, e2etest.Options{Command: []string{"serve"}, Telegram: tg, Projects: map[string]*e2etest.Repository{"my-app": e2etest.Repo(t)},
		Env: []string{"PULSE_LOG_LEVEL=warn"}})
	c := &chatter{tg: tg, dice: dice(seed, 7)}
	code := node.PairCode()
	for i := range 5 {
		p := e2etest.NewPerson(t, tg, fmt.Sprintf("Person%d", i))
		p.Pair(code)
		c.chats, c.users = append(c.chats, p.Chat), append(c.users, p.User)
		r, err := node.Client().Pair(e2etest.Context(t), pulse.RoleOperator)
		must(t, err)
		code = r.Code
	}
	before := tg.Pushed()
	r, began := dice(seed, 8), time.Now()
	for range kills {
		var talking sync.WaitGroup
		talking.Go(func() {
			for left := each; left > 0; left -= 20 {
				c.write(min(left, 20))
			}
		})
		liveOnUpdates(t, tg, r)
		node.Kill()
		talking.Wait()
		node.Forget(1)
		node.Launch()
	}
	raged := time.Since(began)
	awaitHandled(t, node, tg)
	t.Logf("killed %d times in %s; all handled %s after that", kills, raged.Round(time.Second), (time.Since(began) - raged).Round(100*time.Millisecond))
	node.Stop()
	c.check(t, node, before)
}

// liveOnUpdates lets the program live until it has asked for updates a few times, or for a random time of about half a second.
func liveOnUpdates(t *testing.T, tg *telegramtest.Server, r *rand.Rand) {
	ctx, cancel := context.WithTimeout(t.Context(), e2etest.Patience)
	defer cancel()
	n, fetches := len(tg.CallsSince(0)), 1+r.IntN(6)
	asked := func() bool {
		k := 0
		for _, call := range tg.CallsSince(n) {
			if call.Method == "getUpdates" {
				k++
			}
		}
		return k >= fetches
	}
	if r.IntN(2) == 0 { // the next words may come late: it need not have so many reasons to ask
		short, stop := context.WithTimeout(ctx, between(r, 300*time.Millisecond, 1500*time.Millisecond))
		defer stop()
		_ = tg.Await(short, asked)
		return
	}
	fetches = 1
	_ = tg.Await(ctx, asked)
	rest, stop := context.WithTimeout(ctx, between(r, time.Millisecond, 900*time.Millisecond))
	defer stop()
	<-rest.Done()
}

// awaitHandled waits as long as there is progress.
func awaitHandled(t *testing.T, node *e2etest.Pulse, tg *telegramtest.Server) {
	t.Helper()
	raw := node.DB()
	left, moved := -1, time.Now()
	tick := time.NewTicker(100 * time.Millisecond)
	defer tick.Stop()
	for ; left != 0; <-tick.C {
		var n int
		if err := raw.QueryRowContext(t.Context(), "SELECT count(*) FROM inbound_updates WHERE handled_at IS NULL").Scan(&n); err != nil {
			t.Fatal(err)
		}
		if n += len(tg.Pending()); n != left {
			left, moved = n, time.Now()
		}
		if time.Since(moved) > e2etest.Patience {
			t.Fatalf("%d updates are not handled, and it does not go on", left)
		}
	}
}

// check wants each update once on record, with one reply, and each text with one effect. before is how many updates were there
// before the people began.
func (c *chatter) check(t *testing.T, node *e2etest.Pulse, before int) {
	t.Helper()
	raw := node.DB()
	column := func(query string) []string {
		rows, err := raw.QueryContext(t.Context(), query)
		must(t, err)
		defer rows.Close()
		var all []string
		for rows.Next() {
			var v string
			must(t, rows.Scan(&v))
			all = append(all, v)
		}
		must(t, rows.Err())
		return all
	}
	first := func(tags []string) map[string]int {
		n := map[string]int{}
		for _, text := range tags {
			n[longTag(text)]++
		}
		return n
	}
	updates := column("SELECT payload FROM inbound_updates")
	texts := make([]string, 0, len(updates))
	for _, payload := range updates {
		var u struct{ Message struct{ Text string } }
		must(t, json.Unmarshal([]byte(payload), &u))
		texts = append(texts, u.Message.Text)
	}
	heard, goals, words := first(texts), first(column("SELECT goal FROM pulse_sessions")), first(column(
		"SELECT m.text FROM turn_messages m JOIN turns t ON t.id = m.turn_id WHERE t.role = 'user'"))
	replies, silent := map[string]int{}, 0
	for _, slot := range column("SELECT slot FROM notifications WHERE slot LIKE 'reply:%'") {
		replies[slot]++
	}
	for _, id := range column("SELECT id FROM inbound_updates") {
		if replies["reply:"+id] != 1 {
			silent++
		}
	}
	refused := len(column("SELECT id FROM notifications WHERE slot LIKE 'reply:%' AND body LIKE '%⚠️%'"))
	lost, doubled := 0, 0
	for i := range c.tags {
		tag := fmt.Sprintf("tag%06dq", i)
		effects := max(goals[tag], words[tag])
		if heard[tag] == 0 || effects == 0 {
			lost++
		}
		if heard[tag] > 1 || effects > 1 {
			doubled++
		}
	}
	t.Logf("%d updates on record, %d goals, %d words to a goal; %d lost, %d doubled, %d without exactly one reply, %d refused", len(updates)-before, len(goals), len(words), lost, doubled, silent, refused)
	if lost > 0 || doubled > 0 || silent > 0 || refused > 0 {
		t.Error("something was lost, doubled, refused, or has no reply")
	}
	if len(updates) != c.tg.Pushed() || c.tg.Pushed() != before+c.tags {
		t.Errorf("%d updates were said, the platform had %d, %d are on record", before+c.tags, c.tg.Pushed(), len(updates))
	}
	if got := column("PRAGMA integrity_check"); len(got) != 1 || got[0] != "ok" {
		t.Errorf("integrity_check: %q", got)
	}
}

func longTag(text string) string {
	_, after, found := strings.Cut(text, "tag")
	if !found {
		return ""
	}
	number, _, _ := strings.Cut(after, "q")
	return "tag" + number + "q"
}
