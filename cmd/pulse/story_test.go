package main

import (
	"bytes"
	"context"
	"strings"
	"testing"
	"time"

	"pulseloop/agent/cli"
	"pulseloop/api/wire"
	"pulseloop/configs"
	"pulseloop/loop"
	"pulseloop/pulse"
)

func TestAStoryTellsAReasonOnceAndTheChoices(t *testing.T) {
	var out bytes.Buffer
	o := &options{terminal: &terminal{out: &out}}
	story := o.tell(nil, wire.Session{ID: "s1"})
	for _, f := range []struct {
		kind pulse.EventType
		data map[string]any
	}{
		{pulse.EventIterationEnded, map[string]any{"error": "lost once"}},
		{pulse.EventIterationStarted, map[string]any{"iteration": 2, "max": 2}},
		{pulse.EventGateOpened, map[string]any{"kind": "limit"}},
		{pulse.EventGateResolved, map[string]any{"by": "ann", "choice": "more"}},
		{pulse.EventIterationEnded, map[string]any{"error": "the model is gone"}},
		{pulse.EventSessionChanged, map[string]any{"status": "failed", "reason": "the model is gone"}},
		{pulse.EventSessionError, map[string]any{"error": "the model is gone", "hint": "buy another"}},
		{pulse.EventIterationEnded, map[string]any{"error": "aborted"}},
	} {
		story.frame(t.Context(), wire.Frame{Type: string(f.kind), SessionID: "s1", At: time.Now(), Data: f.data})
	}
	story.end()
	var got []string
	for _, line := range strings.Split(strings.TrimSpace(out.String()), "\n") {
		got = append(got, line[len("15:04:05  "):])
	}
	want := "  lost once|● iteration 2 of 2|  → pulse answer s1 more|stop|! decided by ann: more|✗ failed: the model is gone|  → buy another|  aborted"
	if strings.Join(got, "|") != want {
		t.Errorf("told\n%s\nwant\n%s", strings.Join(got, "|"), want)
	}
}

func TestWhatAnAgentLacksHasTheFixOfItsProbe(t *testing.T) {
	t.Setenv("PATH", t.TempDir())
	all := backends(configs.Config{Agents: map[string]configs.Agent{"command": {Command: []string{"/nonexistent"}}}})
	for _, name := range preference {
		_, err := all[name].Command(cli.Input{})
		e, ok := err.(*pulse.Error)
		if p := all[name].Probe(t.Context()); !ok || e.Hint == "" || e.Hint != p.Fix {
			t.Errorf("%s: a run says %v, the probe %q", name, err, p.Fix)
		}
	}
}

func TestWhatTheCommandLineStartsIsToldHere(t *testing.T) {
	for _, c := range []struct {
		in   loop.StartRequest
		want string
	}{
		{loop.StartRequest{Actor: loop.Actor{Origin: pulse.OriginCLI}}, consoleID},
		{loop.StartRequest{Actor: loop.Actor{Origin: pulse.OriginAPI}}, ""},
		{loop.StartRequest{Actor: loop.Actor{Origin: pulse.OriginCLI}, ChatID: "telegram:1"}, ""},
	} {
		var got loop.StartRequest
		if _, err := (local{taker{got: &got}}).Start(t.Context(), c.in); err != nil || got.ConsoleID != c.want {
			t.Errorf("%+v: console %q (%v)", c.in, got.ConsoleID, err)
		}
	}
}

type taker struct {
	loop.Doer
	got *loop.StartRequest
}

func (d taker) Start(_ context.Context, r loop.StartRequest) (pulse.Session, error) {
	*d.got = r
	return pulse.Session{}, nil
}
