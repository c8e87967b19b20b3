package dbtest

import (
	"fmt"
	"testing"
	"time"

	"pulseloop/pulse"
)

func testGuards(t *testing.T, open func(testing.TB) Place) {
	cases(t, open, map[string]func(*fixture){
		"a stale version writes nothing":          staleVersion,
		"a lost step token writes nothing":        lostStep,
		"an unknown session is not found":         unknownSession,
		"guard and session must agree":            mismatchedGuard,
		"a guard without session counts":          guardOnly,
		"of two decisions one is written":         racingDecisions,
		"forbidden session changes are refused":   sessionTransitions,
		"forbidden iteration changes are refused": iterationTransitions,
		"a gate is decided once":                  gateOnce,
		"a new task must be queued":               taskQueued,
		"an update is handled once":               inboundOnce,
		"a pairing code is used once":             codeOnce,
	})
}

func staleVersion(f *fixture) {
	s := f.addSession()
	old := s
	s.Goal = "first"
	f.apply(pulse.Guard{SessionID: s.ID, Version: s.Version}, pulse.Change{Session: &s})
	old.Goal = "second"
	err := f.Apply(f.ctx, pulse.Guard{SessionID: s.ID, Version: old.Version}, pulse.Change{Session: &old,
		Notices: []pulse.Notice{{Address: pulse.Address{Platform: "console", Chat: "1"}, Slot: "x", Kind: pulse.NoticeInfo, Message: pulse.Text("no")}},
		Events:  []pulse.Event{{SessionID: s.ID, Type: pulse.EventSessionChanged}}})
	mustBe(f.t, err, pulse.ErrStale, "second writer")
	now := f.session(s.ID)
	equal(f.t, now.Goal, "first", "goal")
	equal(f.t, now.EventSeq, 0, "events")
	at, err := f.NextNoticeAt(f.ctx)
	mustBe(f.t, err, nil, "next notice")
	equal(f.t, at.IsZero(), true, "no notice")
}

func lostStep(f *fixture) {
	s := f.addSession()
	first, _, err := f.Take(f.ctx, "one", lease)
	mustBe(f.t, err, nil, "take")
	_, next, err := f.Take(f.ctx, "two", lease)
	mustBe(f.t, err, pulse.ErrNone, "take while held")
	equal(f.t, next, f.clock.Now().Add(lease), "next due")
	f.clock.Advance(lease)
	second, _, err := f.Take(f.ctx, "two", lease)
	mustBe(f.t, err, nil, "take after the hold ended")
	equal(f.t, second.ID, s.ID, "session")
	err = f.Apply(f.ctx, pulse.Guard{SessionID: s.ID, Version: first.Version, StepToken: "one"}, pulse.Change{Session: &first})
	mustBe(f.t, err, pulse.ErrStale, "the first runner's write")
	err = f.Apply(f.ctx, pulse.Guard{SessionID: s.ID, Version: second.Version, StepToken: "one"}, pulse.Change{Session: &second})
	mustBe(f.t, err, pulse.ErrStale, "the right version with the wrong token")
	second.StepToken = ""
	f.apply(pulse.Guard{SessionID: s.ID, Version: second.Version, StepToken: "two"}, pulse.Change{Session: &second})
	_, err = f.Session(f.ctx, "")
	mustCode(f.t, err, pulse.CodeNotFound, "empty id")
}

func unknownSession(f *fixture) {
	s := f.newSession()
	for what, change := range map[string]pulse.Change{"update": {Session: &s}, "guard alone": {}} {
		err := f.Apply(f.ctx, pulse.Guard{SessionID: s.ID, Version: 1}, change)
		mustCode(f.t, err, pulse.CodeNotFound, what)
	}
	err := f.Apply(f.ctx, pulse.Guard{}, pulse.Change{Events: []pulse.Event{{SessionID: s.ID, Type: pulse.EventSessionChanged}}})
	mustCode(f.t, err, pulse.CodeNotFound, "event")
	_, err = f.Session(f.ctx, "not a uuid'; --")
	mustCode(f.t, err, pulse.CodeNotFound, "read of nonsense")
	err = f.Apply(f.ctx, pulse.Guard{SessionID: "nonsense", Version: 1}, pulse.Change{})
	mustCode(f.t, err, pulse.CodeNotFound, "guard of nonsense")
}

func mismatchedGuard(f *fixture) {
	a, b := f.addSession(), f.addSession()
	err := f.Apply(f.ctx, pulse.Guard{SessionID: a.ID, Version: a.Version}, pulse.Change{Session: &b})
	mustCode(f.t, err, pulse.CodeInvalid, "guard of another session")
}

func guardOnly(f *fixture) {
	s := f.addSession()
	g := pulse.Guard{SessionID: s.ID, Version: s.Version}
	f.apply(g, pulse.Change{Audit: []pulse.AuditEntry{{Action: "look"}}})
	mustBe(f.t, f.Apply(f.ctx, g, pulse.Change{}), pulse.ErrStale, "the same guard again")
	equal(f.t, f.session(s.ID).Version, s.Version+1, "version")
}

func racingDecisions(f *fixture) {
	s := f.addSession()
	errs := together(8, func(i int) error {
		mine := s
		mine.Goal = label(i)
		return f.Apply(f.ctx, pulse.Guard{SessionID: s.ID, Version: s.Version}, pulse.Change{Session: &mine,
			Events: []pulse.Event{{SessionID: s.ID, Type: pulse.EventSessionChanged}}})
	})
	won := 0
	for _, err := range errs {
		if err == nil {
			won++
			continue
		}
		mustBe(f.t, err, pulse.ErrStale, "a loser")
	}
	equal(f.t, won, 1, "winners")
	equal(f.t, f.session(s.ID).EventSeq, 1, "events")
}

// sessionTransitions tries every pair of states against the table.
func sessionTransitions(f *fixture) {
	for _, from := range pulse.SessionStatuses() {
		for _, to := range pulse.SessionStatuses() {
			s := f.newSession()
			s.Status = from
			f.apply(pulse.Guard{}, pulse.Change{NewSession: &s})
			s.Status = to
			err := f.Apply(f.ctx, pulse.Guard{SessionID: s.ID, Version: 1}, pulse.Change{Session: &s})
			if from == to || pulse.SessionTransitions.Allows(from, to) {
				mustBe(f.t, err, nil, fmt.Sprintf("%s to %s", from, to))
			} else {
				mustBe(f.t, err, pulse.ErrStale, fmt.Sprintf("%s to %s", from, to))
			}
		}
	}
}

func iterationTransitions(f *fixture) {
	s := f.addSession()
	all := []pulse.IterationStatus{pulse.IterationPending, pulse.IterationDispatched, pulse.IterationRunning,
		pulse.IterationComplete, pulse.IterationFailed, pulse.IterationTimeout}
	n := 0
	for _, from := range all {
		for _, to := range all {
			n++
			it := pulse.Iteration{ID: pulse.IterationID(f.id()), SessionID: s.ID, Number: n, Attempt: 1, Run: 1, Status: from}
			f.apply(pulse.Guard{}, pulse.Change{Iterations: []pulse.Iteration{it}})
			it.Status = to
			err := f.Apply(f.ctx, pulse.Guard{}, pulse.Change{Iterations: []pulse.Iteration{it}})
			if from == to || pulse.IterationTransitions.Allows(from, to) {
				mustBe(f.t, err, nil, fmt.Sprintf("%s to %s", from, to))
			} else {
				mustBe(f.t, err, pulse.ErrStale, fmt.Sprintf("%s to %s", from, to))
			}
		}
	}
	twin := pulse.Iteration{ID: pulse.IterationID(f.id()), SessionID: s.ID, Number: n, Attempt: 1, Run: 1, Status: pulse.IterationPending}
	mustBe(f.t, f.Apply(f.ctx, pulse.Guard{}, pulse.Change{Iterations: []pulse.Iteration{twin}}), pulse.ErrStale, "the same number and attempt twice")
}

func gateOnce(f *fixture) {
	s := f.addSession()
	g := pulse.Gate{ID: pulse.GateID(f.id()), SessionID: s.ID, Kind: pulse.GateQuestion, Prompt: "which?", Status: pulse.GateOpen,
		Options: []pulse.GateOption{{Key: "a", Label: "A"}}, CreatedAt: f.clock.Now()}
	_, err := f.OpenGate(f.ctx, s.ID)
	mustBe(f.t, err, pulse.ErrNone, "no gate yet")
	f.apply(pulse.Guard{}, pulse.Change{Gates: []pulse.Gate{g}})
	open, err := f.OpenGate(f.ctx, s.ID)
	mustBe(f.t, err, nil, "open gate")
	equal(f.t, open.Options[0].Label, "A", "option")
	errs := together(6, func(i int) error {
		mine := g
		mine.Status, mine.Choice, mine.DecidedName, mine.DecidedAt = pulse.GateResolved, label(i), "Ann", f.clock.Now()
		return f.Apply(f.ctx, pulse.Guard{}, pulse.Change{Gates: []pulse.Gate{mine}})
	})
	won := ""
	for i, err := range errs {
		switch {
		case err == nil && won == "":
			won = label(i)
		default:
			mustBe(f.t, err, pulse.ErrStale, "a second decision")
		}
	}
	got, err := f.Gate(f.ctx, g.ID)
	mustBe(f.t, err, nil, "read gate")
	equal(f.t, got.Choice, won, "the first decision stands")
	_, err = f.OpenGate(f.ctx, s.ID)
	mustBe(f.t, err, pulse.ErrNone, "no open gate any more")
	_, err = f.Gate(f.ctx, pulse.GateID(f.id()))
	mustCode(f.t, err, pulse.CodeNotFound, "unknown gate")
}

func taskQueued(f *fixture) {
	s := f.addSession()
	err := f.Apply(f.ctx, pulse.Guard{}, pulse.Change{Tasks: []pulse.Task{{ID: pulse.TaskID(f.id()), Kind: pulse.TaskIterate, Route: "r", SessionID: s.ID, Status: pulse.TaskRunning}}})
	mustCode(f.t, err, pulse.CodeConflict, "a task that starts as running")
	err = f.Apply(f.ctx, pulse.Guard{}, pulse.Change{Tasks: []pulse.Task{{ID: pulse.TaskID(f.id()), Kind: pulse.TaskIterate, Route: "r", SessionID: pulse.SessionID(f.id())}}})
	mustCode(f.t, err, pulse.CodeInvalid, "a task of a session that does not exist")
}

func inboundOnce(f *fixture) {
	update := pulse.Inbound{ID: pulse.InboundID(f.id()), Platform: pulse.PlatformTelegram, Source: "bot", UpdateID: "7", Order: 7, Payload: []byte("{}")}
	_, err := f.Receive(f.ctx, "bot", []pulse.Inbound{update}, "8")
	mustBe(f.t, err, nil, "receive")
	errs := together(6, func(int) error {
		s := f.newSession()
		return f.Apply(f.ctx, pulse.Guard{Inbound: update.ID}, pulse.Change{NewSession: &s})
	})
	won := 0
	for _, err := range errs {
		if err == nil {
			won++
			continue
		}
		mustBe(f.t, err, pulse.ErrDone, "handled again")
	}
	equal(f.t, won, 1, "effects")
	list, err := f.Sessions(f.ctx, pulse.SessionFilter{})
	mustBe(f.t, err, nil, "sessions")
	equal(f.t, len(list), 1, "sessions started")
}

func codeOnce(f *fixture) {
	now := f.clock.Now()
	code := pulse.PairingCode{Hash: "abc", Role: pulse.RoleOwner, CreatedAt: now, ExpiresAt: now.Add(10 * time.Minute)}
	late := pulse.PairingCode{Hash: "late", Role: pulse.RoleOwner, CreatedAt: now, ExpiresAt: now.Add(time.Minute)}
	f.apply(pulse.Guard{}, pulse.Change{NewCode: &code})
	f.apply(pulse.Guard{}, pulse.Change{NewCode: &late})
	active, err := f.ActiveCodes(f.ctx)
	mustBe(f.t, err, nil, "active codes")
	equal(f.t, len(active), 2, "active codes")
	f.clock.Advance(time.Minute)
	errs := together(4, func(i int) error {
		o := pulse.Operator{ID: pulse.OperatorID(f.id()), Platform: "telegram", UserID: label(i), Role: code.Role}
		return f.Apply(f.ctx, pulse.Guard{}, pulse.Change{UsedCode: "abc", Operator: &o})
	})
	won := 0
	for _, err := range errs {
		if err == nil {
			won++
			continue
		}
		mustBe(f.t, err, pulse.ErrStale, "a code used again")
	}
	equal(f.t, won, 1, "uses")
	n, err := f.CountOperators(f.ctx, "telegram")
	mustBe(f.t, err, nil, "count")
	equal(f.t, n, 1, "operators")
	mustBe(f.t, f.Apply(f.ctx, pulse.Guard{}, pulse.Change{UsedCode: "late"}), pulse.ErrStale, "an expired code")
	mustBe(f.t, f.Apply(f.ctx, pulse.Guard{}, pulse.Change{UsedCode: "nonsense"}), pulse.ErrStale, "an unknown code")
	active, err = f.ActiveCodes(f.ctx)
	mustBe(f.t, err, nil, "active codes")
	equal(f.t, len(active), 0, "active codes")
}
