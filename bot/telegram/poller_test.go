package telegram_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"strconv"
	"strings"
	"testing"
	"time"

	"pulseloop/bot/telegram"
	"pulseloop/bot/telegram/telegramtest"
)

func quick() telegram.PollerConfig {
	return telegram.PollerConfig{Wait: 20 * time.Second, MinBackoff: time.Millisecond, MaxBackoff: 10 * time.Millisecond}
}

// run starts a poller and answers how to end it.
func run(t *testing.T, e *env, in *intake, cfg telegram.PollerConfig) (p *telegram.Poller, stop func()) {
	t.Helper()
	ctx, cancel := context.WithCancel(e.ctx)
	p = telegram.NewPoller(e.client, in, cfg)
	done := make(chan error, 1)
	go func() { done <- p.Run(ctx) }()
	stop = func() {
		cancel()
		if err := <-done; err != nil {
			t.Errorf("Run: %v", err)
		}
	}
	return p, stop
}

func TestPollerCommitsBeforeItConfirms(t *testing.T) {
	e := setup(t, telegramtest.Options{})
	in := newIntake()
	ann := e.srv.User("Ann")
	chat := ann.Private()
	chat.Say(ann, "one")
	refused := make(chan struct{}, 100)
	in.fail(func() error { refused <- struct{}{}; return errors.New("database away") }, nil)
	p, stop := run(t, e, in, quick())
	<-refused
	<-refused
	if got := e.srv.Pending(); len(got) != 1 {
		t.Fatalf("an update that is not stored was confirmed: pending %v", got)
	}
	if err := e.srv.Await(e.ctx, func() bool { return p.Status().State == telegram.StateRetrying }); err != nil {
		t.Fatal(err)
	}
	in.fail(nil, nil)
	if err := in.await(e.ctx, 1); err != nil {
		t.Fatal(err)
	}
	if err := e.srv.Await(e.ctx, func() bool { return len(e.srv.Pending()) == 0 }); err != nil {
		t.Fatal(err)
	}
	stop()
	if p.Status().State != telegram.StatePolling {
		t.Errorf("status %+v", p.Status())
	}
	for _, c := range e.srv.CallsOf("getUpdates") {
		if !strings.Contains(c.Params["allowed_updates"], `"callback_query"`) {
			t.Errorf("allowed_updates not explicit: %v", c.Params)
		}
	}
}

// Every update is stored exactly once, whatever dies when: before the commit, after it, the answer on the way, or the process.
func TestPollerLosesNothingOverCrashes(t *testing.T) {
	e := setup(t, telegramtest.Options{})
	in := newIntake()
	ann := e.srv.User("Ann")
	chat := ann.Private()
	const total = 300
	rng := rand.New(rand.NewPCG(7, 11))
	sent := 0
	for life := 0; sent < total || in.len() < total; life++ {
		for range rng.IntN(12) {
			if sent < total {
				chat.Say(ann, fmt.Sprintf("goal %d", sent))
				sent++
			}
		}
		in.fail(nil, nil)
		died := make(chan struct{}, 1000)
		crash := func() error { died <- struct{}{}; return errors.New("killed") }
		switch rng.IntN(5) {
		case 0:
			in.fail(crash, nil)
		case 1:
			in.fail(nil, crash)
		case 2:
			e.srv.Inject(telegramtest.Fault{Method: "getUpdates", Cut: true, Applied: true})
		case 3:
			e.srv.RepeatUpdates(5)
		case 4:
			e.srv.ReverseUpdates()
		}
		_, stop := run(t, e, in, quick())
		if rng.IntN(2) == 0 && sent > in.len() {
			select {
			case <-died:
			case <-waitFor(e.ctx, in, in.len()+1):
			}
		}
		stop()
		if life > 5000 {
			t.Fatalf("%d of %d after %d lives", in.len(), total, life)
		}
	}
	for key, n := range in.seen {
		if n != 1 {
			t.Errorf("%s stored %d times", key, n)
		}
	}
	if in.len() != total {
		t.Errorf("stored %d of %d", in.len(), total)
	}
}

func waitFor(ctx context.Context, in *intake, n int) chan struct{} {
	done := make(chan struct{})
	go func() { _ = in.await(ctx, n); close(done) }()
	return done
}

func TestPollerResumesFromTheStoredOffset(t *testing.T) {
	e := setup(t, telegramtest.Options{})
	in := newIntake()
	ann := e.srv.User("Ann")
	ann.Private().Say(ann, "one")
	_, stop := run(t, e, in, quick())
	if err := in.await(e.ctx, 1); err != nil {
		t.Fatal(err)
	}
	stop()
	before := len(e.srv.CallsOf("getUpdates"))
	_, stop = run(t, e, in, quick())
	if err := e.srv.Await(e.ctx, func() bool { return len(e.srv.CallsOf("getUpdates")) > before }); err != nil {
		t.Fatal(err)
	}
	stop()
	next, _, _ := strings.Cut(in.offset, "@")
	if got := e.srv.CallsOf("getUpdates")[before].Params["offset"]; got != next || next == "" {
		t.Errorf("first poll of the second life asked from %q, stored is %q", got, in.offset)
	}
}

// After a week of silence the platform counts from a random number: the old offset must not be sent.
func TestPollerForgetsAnOldOffset(t *testing.T) {
	e := setup(t, telegramtest.Options{})
	in := newIntake()
	old := time.Now().Add(-8 * 24 * time.Hour).Unix()
	in.offset = fmt.Sprintf("999999999999@%d", old)
	ann := e.srv.User("Ann")
	ann.Private().Say(ann, "after the holidays")
	_, stop := run(t, e, in, quick())
	defer stop()
	if err := in.await(e.ctx, 1); err != nil {
		t.Fatal(err)
	}
}

func TestTwoPollersLoseNothing(t *testing.T) {
	e := setup(t, telegramtest.Options{})
	in := newIntake()
	ann := e.srv.User("Ann")
	chat := ann.Private()
	first, stopFirst := run(t, e, in, quick())
	second, stopSecond := run(t, e, in, quick())
	standby := func() bool {
		return first.Status().State == telegram.StateStandby || second.Status().State == telegram.StateStandby
	}
	if err := e.srv.Await(e.ctx, standby); err != nil {
		t.Fatal(err)
	}
	for i := range 50 {
		chat.Say(ann, fmt.Sprint(i))
	}
	if err := in.await(e.ctx, 50); err != nil {
		t.Fatal(err)
	}
	stopFirst()
	chat.Say(ann, "last")
	if err := in.await(e.ctx, 51); err != nil {
		t.Fatal("the standby did not take over")
	}
	stopSecond()
	if !strings.Contains(e.log.String(), "another process fetches this bot's updates") {
		t.Error("the conflict is not explained in the log")
	}
}

func TestPollerSurvivesThePlatform(t *testing.T) {
	e := setup(t, telegramtest.Options{})
	in := newIntake()
	ann := e.srv.User("Ann")
	chat := ann.Private()
	for _, f := range []telegramtest.Fault{{Status: 500}, {HTML: true}, {Cut: true}, {RetryAfter: 1}, {Status: 401, Description: "Unauthorized"}} {
		f.Method = "getUpdates"
		e.srv.Inject(f)
	}
	p, stop := run(t, e, in, quick())
	defer stop()
	chat.Say(ann, "hello")
	if err := in.await(e.ctx, 1); err != nil {
		t.Fatal(err)
	}
	// A webhook that someone sets meanwhile is removed again.
	hook := telegramtest.Fault{Method: "getUpdates", Status: 409,
		Description: "Conflict: can't use getUpdates method while webhook is active; use deleteWebhook to delete the webhook first"}
	before := len(e.srv.CallsOf("deleteWebhook"))
	e.srv.Inject(hook)
	chat.Say(ann, "again")
	if err := in.await(e.ctx, 2); err != nil {
		t.Fatal(err)
	}
	chat.Say(ann, "and again")
	if err := e.srv.Await(e.ctx, func() bool { return len(e.srv.CallsOf("deleteWebhook")) > before }); err != nil {
		t.Fatal(err)
	}
	if err := e.srv.Await(e.ctx, func() bool { return p.Status().State == telegram.StatePolling }); err != nil {
		t.Fatal(err)
	}
}

func TestHangingPollIsGivenUp(t *testing.T) {
	e := setup(t, telegramtest.Options{})
	c, err := telegram.New(telegram.Config{Token: e.srv.Token(), APIURL: e.srv.URL(), CallTimeout: 50 * time.Millisecond})
	if err != nil {
		t.Fatal(err)
	}
	e.client = c
	in := newIntake()
	e.srv.Inject(telegramtest.Fault{Method: "getUpdates", Hang: true})
	cfg := quick()
	cfg.Wait = 10 * time.Millisecond
	ann := e.srv.User("Ann")
	ann.Private().Say(ann, "hello")
	_, stop := run(t, e, in, cfg)
	defer stop()
	if err := in.await(e.ctx, 1); err != nil {
		t.Fatal(err)
	}
}

// Whatever order a batch comes in, the offset goes behind its highest id.
func TestOffsetOfAReversedBatch(t *testing.T) {
	e := setup(t, telegramtest.Options{})
	in := newIntake()
	ann := e.srv.User("Ann")
	for range 3 {
		ann.Private().Say(ann, "x")
	}
	pending := e.srv.Pending()
	e.srv.ReverseUpdates()
	p := telegram.NewPoller(e.client, in, quick())
	if n, err := p.RunOnce(e.ctx); n != 3 || err != nil {
		t.Fatal(n, err)
	}
	if want := fmt.Sprint(pending[2] + 1); !strings.HasPrefix(in.offset, want+"@") {
		t.Errorf("offset %s, want %s", in.offset, want)
	}
}

// A day offline: the platform has dropped what came first, and goes on with what came later. A week of silence: it counts anew,
// below or above. Whatever it delivers has one effect.
func TestPollerAfterGaps(t *testing.T) {
	e := setup(t, telegramtest.Options{})
	in, clock := newIntake(), newPatient()
	chat := e.srv.User("Ann").Private()
	cfg := quick()
	cfg.Now = clock.Now
	p := telegram.NewPoller(e.client, in, cfg)
	poll := func(want int) {
		t.Helper()
		if n, err := p.RunOnce(e.ctx); err != nil || n != want {
			t.Fatalf("%d new updates, want %d: %v", n, want, err)
		}
	}
	say := func(words ...string) {
		for _, w := range words {
			chat.Say(e.srv.User("Ann"), w)
		}
	}
	say("one")
	poll(1)
	say("dropped", "dropped too")
	e.srv.ExpireUpdates()
	clock.add(26 * time.Hour)
	say("two")
	poll(1)
	for i, id := range []int64{12, 1 << 40, 730000001 - 5} {
		clock.add(8 * 24 * time.Hour)
		if i == 1 {
			p = telegram.NewPoller(e.client, in, cfg) // a process that was not there in the meantime
		}
		e.srv.RenumberUpdates(id)
		say("after the quiet")
		poll(1)
		e.srv.RepeatUpdates(1)
		say("and more")
		poll(1)
		if next := strconv.FormatInt(id+2, 10); !strings.HasPrefix(in.offset, next+"@") {
			t.Errorf("offset %s, want %s", in.offset, next)
		}
	}
	if n := in.len(); n != 8 {
		t.Errorf("%d updates are on record, want 8", n)
	}
}

// What is no update is passed over, and takes nothing with it.
func TestPollerPassesOverWhatIsNoUpdate(t *testing.T) {
	in := newIntake()
	answers := []string{
		`{"ok":true,"result":[{"update_id":0,"message":{"text":"zero"}},{"message":{}},{"update_id":-4},{"update_id":9223372036854775807},{"update_id":"7"},` +
			`null,7,{"update_id":3,"update_id":5},{"update_id":9007199254740990,"shiny":1}]}`,
		`{"ok":true,"result":[{"update_id":-4}]}`, `{"ok":true,"result":{}}`, `<html>`, ``, `{"ok":true,"result":[]}`,
	}
	var asked []string
	web := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		asked = append(asked, string(body))
		_, _ = io.WriteString(w, answers[len(asked)-1])
	}))
	defer web.Close()
	c, err := telegram.New(telegram.Config{Token: telegramtest.DefaultToken, APIURL: web.URL})
	if err != nil {
		t.Fatal(err)
	}
	p := telegram.NewPoller(c, in, quick())
	if n, err := p.RunOnce(t.Context()); n != 3 || err != nil {
		t.Fatalf("%d new updates of the three that have an id: %v", n, err)
	}
	for i := range 4 {
		if _, err := p.RunOnce(t.Context()); err == nil {
			t.Errorf("the answer %q is no error", answers[i+1])
		}
	}
	if _, err := p.RunOnce(t.Context()); err != nil {
		t.Error(err)
	}
	var ids []string
	for _, u := range in.order {
		ids = append(ids, u.UpdateID)
	}
	if got := strings.Join(ids, " "); got != "0 5 9007199254740990" {
		t.Errorf("stored: %s", got)
	}
	for _, a := range asked[1:] {
		if !strings.Contains(a, `"offset":9007199254740991`) {
			t.Errorf("asked with %s", a)
		}
	}
}
