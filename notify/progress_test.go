package notify_test

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"pulseloop/notify"
	"pulseloop/notify/notifytest"
	"pulseloop/pulse"
)

func followed(chat string) pulse.Session {
	return pulse.Session{ID: pulse.SessionID("s-" + chat), ProjectName: "my-app", MaxIterations: 10, CurrentIteration: 1,
		Status: pulse.SessionRunning, ChatID: chat}
}

func started(n int) pulse.Event {
	return pulse.Event{Type: pulse.EventIterationStarted, At: time.Now(), Data: map[string]any{"iteration": n, "iterationId": fmt.Sprintf("it%d", n)}}
}

func tool(call, summary string) pulse.Event {
	return pulse.Event{Type: pulse.EventToolStarted, At: time.Now(), Data: map[string]any{"callId": call, "name": "Bash", "summary": summary}}
}

func toolEnd(call, status string) pulse.Event {
	return pulse.Event{Type: pulse.EventToolCompleted, At: time.Now(), Data: map[string]any{"callId": call, "name": "Bash", "status": status}}
}

func ended(n int) pulse.Event {
	return pulse.Event{Type: pulse.EventIterationEnded, At: time.Now(), Data: map[string]any{"iteration": n, "iterationId": fmt.Sprintf("it%d", n)}}
}

type progressBench struct {
	t      *testing.T
	outbox *notifytest.Outbox
	news   *notifytest.News
	p      *notify.Progress
}

func newProgressBench(t *testing.T) *progressBench {
	o := notifytest.NewOutbox(t, nil)
	l := notifytest.NewNews(t, o)
	return &progressBench{t: t, outbox: o, news: l, p: notify.NewProgress(l, notify.ProgressConfig{})}
}

func (b *progressBench) pass() {
	b.t.Helper()
	time.Sleep(2 * time.Second) // the bubble's clock: more than the interval
	if _, err := b.p.RunOnce(context.Background()); err != nil {
		b.t.Fatal(err)
	}
}

func TestProgressIsOneLiveMessageAnIteration(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b, s := newProgressBench(t), followed("1")
		b.news.Write(s, started(1))
		b.pass()
		n := b.outbox.Get("progress:it1")
		if !n.Editable || !n.Silent || n.Kind != pulse.NoticeProgress || n.SessionID != s.ID {
			t.Errorf("live message is %+v", n)
		}
		b.news.Write(s, tool("a", "go test ./..."), toolEnd("a", "failed"), tool("b", "ls"))
		b.pass()
		got := b.outbox.Get("progress:it1").Message.Plain()
		if want := "⚙️ [my-app] Iteration 1/10 · 4s · 2 steps\n✗ Bash go test ./...\n▸ Bash ls"; got != want {
			t.Errorf("live message\n got %q\nwant %q", got, want)
		}
		b.news.Write(s, ended(1))
		b.pass()
		if got, want := b.outbox.Get("progress:it1").Message.Plain(), "▪️ [my-app] Iteration 1/10 ended after 4s · 2 steps (1 failed)"; got != want {
			t.Errorf("closed form\n got %q\nwant %q", got, want)
		}
		closed := b.outbox.Get("progress:it1").Revision
		b.news.Write(s, tool("late", "said too late"), toolEnd("b", "completed"))
		b.pass()
		if n := b.outbox.Get("progress:it1"); n.Revision != closed {
			t.Errorf("edited after the iteration ended: %q", n.Message.Plain())
		}
		if all := b.outbox.All(); len(all) != 1 {
			t.Errorf("%d messages for one iteration", len(all))
		}
	})
}

func TestProgressShowsTheLatestSteps(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b, s := newProgressBench(t), followed("1")
		events := []pulse.Event{started(1)}
		for i := range 20 {
			events = append(events, tool(fmt.Sprint(i), fmt.Sprintf("step %d\x1b[31m\nmore", i)), toolEnd(fmt.Sprint(i), "completed"))
		}
		b.news.Write(s, events...)
		b.pass()
		got := b.outbox.Get("progress:it1").Message.Plain()
		lines := strings.Split(got, "\n")
		if len(lines) != 5 || lines[4] != "✓ Bash step 19 more" || lines[1] != "✓ Bash step 16 more" || !strings.Contains(lines[0], "20 steps") {
			t.Errorf("live message is\n%s", got)
		}
	})
}

func TestProgressShowsANoteUntilTheNextStep(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b, s := newProgressBench(t), followed("1")
		note := pulse.Event{Type: pulse.EventTurnNote, At: time.Now(), Data: map[string]any{"text": "limited:\ntrying again"}}
		b.news.Write(s, started(1), tool("a", "ls"), note)
		b.pass()
		if got := b.outbox.Get("progress:it1").Message.Plain(); !strings.HasSuffix(got, "▸ Bash ls\n… limited: trying again") {
			t.Errorf("live message is\n%s", got)
		}
		before := b.outbox.Get("progress:it1").Revision
		b.news.Write(s, note)
		b.pass()
		if n := b.outbox.Get("progress:it1"); n.Revision != before {
			t.Errorf("edited for a note that says the same: %q", n.Message.Plain())
		}
		b.news.Write(s, tool("b", "pwd"))
		b.pass()
		if got := b.outbox.Get("progress:it1").Message.Plain(); strings.Contains(got, "limited") {
			t.Errorf("live message is\n%s", got)
		}
	})
}

func TestProgressCoalesces(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b, s := newProgressBench(t), followed("1")
		b.news.Write(s, started(1))
		for i := range 100 { // 10 s of ten events a second, looked at each time
			b.news.Write(s, tool(fmt.Sprint(i), "x"))
			if _, err := b.p.RunOnce(context.Background()); err != nil {
				t.Fatal(err)
			}
			time.Sleep(100 * time.Millisecond)
		}
		if n := b.news.Advanced(); n < 5 || n > 8 {
			t.Errorf("wrote %d times in 10 s, about 7 are right", n)
		}
	})
}

func TestProgressAfterARestartGoesOnInTheSameMessage(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b, s := newProgressBench(t), followed("1")
		b.news.Write(s, started(1), tool("a", "first"))
		b.pass()
		b.p = notify.NewProgress(b.news, notify.ProgressConfig{})
		b.news.Write(s, tool("b", "second"))
		b.pass()
		got := b.outbox.Get("progress:it1").Message.Plain()
		if !strings.Contains(got, "first") || !strings.Contains(got, "second") || !strings.Contains(got, "2 steps") {
			t.Errorf("after the restart the message is\n%s", got)
		}
		b.p = notify.NewProgress(b.news, notify.ProgressConfig{})
		b.news.Write(s, ended(1))
		b.pass()
		if got := b.outbox.Get("progress:it1").Message.Plain(); !strings.Contains(got, "ended after") || !strings.Contains(got, "2 steps") {
			t.Errorf("after the second restart the message is\n%s", got)
		}
	})
}

func TestProgressOfWhatIsOverIsNotShown(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b, s := newProgressBench(t), followed("1")
		b.news.Write(s, started(1), tool("a", "x"), ended(1), started(2))
		b.pass()
		all := b.outbox.All()
		if len(all) != 1 || all[0].Slot != "progress:it2" {
			t.Errorf("messages: %+v", all)
		}
	})
}

func TestProgressGoesWhereTheSessionIsFollowedButNotBySMS(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b, s := newProgressBench(t), followed("1")
		s.PhoneNumber, s.ConsoleID = "+4912345", "c"
		b.news.Write(s, started(1))
		b.pass()
		var got []string
		for _, n := range b.outbox.All() {
			got = append(got, string(n.Address.Platform))
		}
		if strings.Join(got, " ") != "telegram console" {
			t.Errorf("went to %v", got)
		}
	})
}

func TestProgressLosesNothingWhenTheWatermarkMoved(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b, s := newProgressBench(t), followed("1")
		b.news.Write(s, started(1), tool("a", "x"))
		b.news.StaleOnce(1)
		b.pass()
		b.pass()
		if got := b.outbox.Get("progress:it1").Message.Plain(); !strings.Contains(got, "1 step") {
			t.Errorf("message is\n%s", got)
		}
	})
}

func TestProgressRunEndsWithItsContext(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b, s := newProgressBench(t), followed("1")
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan error, 1)
		go func() { done <- b.p.Run(ctx) }()
		b.news.Write(s, started(1))
		time.Sleep(3 * time.Second)
		synctest.Wait()
		if len(b.outbox.All()) != 1 {
			t.Error("the poll found nothing")
		}
		cancel()
		if err := <-done; err != nil {
			t.Error(err)
		}
	})
}

func TestProgressReachesTheSessionsBehindBusyOnes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newProgressBench(t)
		for i := range 250 {
			b.news.Write(followed(fmt.Sprint(i)), started(1))
		}
		b.pass()
		if n := len(b.outbox.All()); n != 250 {
			t.Fatalf("%d of 250 sessions have a live message", n)
		}
		for i := range 249 { // all written a moment ago, with more news
			b.news.Write(followed(fmt.Sprint(i)), tool("a", "x"))
		}
		late := followed("late")
		b.news.Write(late, started(1))
		if _, err := b.p.RunOnce(context.Background()); err != nil {
			t.Fatal(err)
		}
		if n := len(b.outbox.All()); n != 251 {
			t.Error("the session behind 249 busy ones was not reached")
		}
	})
}
