package dbtest

import (
	"fmt"
	"strings"
	"time"

	"pulseloop/pulse"
)

func audited(f *fixture) {
	n, err := f.VerifyAudit(f.ctx)
	mustBe(f.t, err, nil, "verify nothing")
	equal(f.t, n, 0, "entries")
	errs := together(5, func(i int) error {
		for range 4 {
			err := f.Apply(f.ctx, pulse.Guard{}, pulse.Change{Audit: []pulse.AuditEntry{
				{Operator: "o", Name: "Ann\x00\xff", Action: "pair", Subject: label(i), Detail: "é"}, {Action: "start"}}})
			if err != nil {
				return err
			}
		}
		return nil
	})
	noErrors(f.t, errs)
	n, err = f.VerifyAudit(f.ctx)
	mustBe(f.t, err, nil, "verify")
	equal(f.t, n, 40, "entries")
	raw := f.place.Raw(f.t)
	var detail string
	if err := raw.QueryRow("SELECT detail FROM audit WHERE seq = 7").Scan(&detail); err != nil {
		f.t.Fatal(err)
	}
	f.place.Exec(f.t, "UPDATE audit SET detail = 'nothing' WHERE seq = 7")
	_, err = f.VerifyAudit(f.ctx)
	mustCode(f.t, err, pulse.CodeConflict, "an entry changed")
	equal(f.t, strings.Contains(err.Error(), "entry 7"), true, "the entry is named: "+err.Error())
	f.place.Exec(f.t, "UPDATE audit SET detail = $1 WHERE seq = 7", detail)
	_, err = f.VerifyAudit(f.ctx)
	mustBe(f.t, err, nil, "put right")
	f.place.Exec(f.t, "DELETE FROM audit WHERE seq = 40")
	_, err = f.VerifyAudit(f.ctx)
	mustCode(f.t, err, pulse.CodeConflict, "the last entry removed")
}

func settings(f *fixture) {
	_, err := f.Setting(f.ctx, "model")
	mustBe(f.t, err, pulse.ErrNone, "unset")
	for _, v := range []string{"opus", "sonnet"} {
		mustBe(f.t, f.SaveSetting(f.ctx, "model", v), nil, "save")
		got, err := f.Setting(f.ctx, "model")
		mustBe(f.t, err, nil, "read")
		equal(f.t, got, v, "value")
	}
}

func people(f *fixture) {
	_, err := f.Operator(f.ctx, "telegram", "99")
	mustBe(f.t, err, pulse.ErrNone, "a stranger")
	o := pulse.Operator{ID: pulse.OperatorID(f.id()), Platform: "telegram", UserID: "99", Name: "Ann", Role: pulse.RoleViewer}
	f.apply(pulse.Guard{}, pulse.Change{Operator: &o})
	again := pulse.Operator{ID: pulse.OperatorID(f.id()), Platform: "telegram", UserID: "99", Name: "Ann B.", Role: pulse.RoleOwner}
	f.apply(pulse.Guard{}, pulse.Change{Operator: &again})
	got, err := f.Operator(f.ctx, "telegram", "99")
	mustBe(f.t, err, nil, "read")
	equal(f.t, got.ID, o.ID, "the first id stays")
	equal(f.t, got.Role, pulse.RoleOwner, "role")
	_, err = f.Operator(f.ctx, "discord", "99")
	mustBe(f.t, err, pulse.ErrNone, "the same number elsewhere")
	all, err := f.Operators(f.ctx)
	mustBe(f.t, err, nil, "list")
	equal(f.t, len(all), 1, "operators")

	topic := pulse.Address{Platform: "telegram", Chat: "42", Thread: "7"}
	_, err = f.Channel(f.ctx, topic)
	mustBe(f.t, err, pulse.ErrNone, "an unbound topic")
	s := f.newSession()
	f.apply(pulse.Guard{}, pulse.Change{NewSession: &s, Channel: &pulse.Channel{Address: topic, ProjectID: f.project.ID, SessionID: s.ID}})
	c, err := f.Channel(f.ctx, topic)
	mustBe(f.t, err, nil, "channel")
	equal(f.t, c, pulse.Channel{Address: topic, ProjectID: f.project.ID, SessionID: s.ID}, "channel")
	f.apply(pulse.Guard{}, pulse.Change{Channel: &pulse.Channel{Address: topic, ProjectID: f.project.ID}})
	c, err = f.Channel(f.ctx, topic)
	mustBe(f.t, err, nil, "channel")
	equal(f.t, c.SessionID, "", "unbound session")

	p := f.project
	p.BaseBranch, p.Name = "develop", "renamed"
	f.apply(pulse.Guard{}, pulse.Change{Project: &p})
	gotP, err := f.ProjectByName(f.ctx, "renamed")
	mustBe(f.t, err, nil, "project")
	equal(f.t, gotP, p, "project")
	_, err = f.ProjectByName(f.ctx, "my-app")
	mustCode(f.t, err, pulse.CodeNotFound, "the old name")
	_, err = f.Project(f.ctx, "nonsense")
	mustCode(f.t, err, pulse.CodeNotFound, "nonsense")
	twin := pulse.Project{ID: pulse.ProjectID(f.id()), Name: "renamed", Path: "/x"}
	mustCode(f.t, f.Apply(f.ctx, pulse.Guard{}, pulse.Change{Project: &twin}), pulse.CodeConflict, "a name twice")
	list, err := f.Projects(f.ctx)
	mustBe(f.t, err, nil, "projects")
	equal(f.t, len(list), 1, "projects")
}

func wrongCodes(f *fixture) {
	for i := 1; i <= 3; i++ {
		n, err := f.FailedPairing(f.ctx, "telegram", "666")
		mustBe(f.t, err, nil, "count")
		equal(f.t, n, i, "wrong codes")
		f.clock.Advance(15 * time.Minute)
	}
	n, err := f.FailedPairing(f.ctx, "telegram", "667")
	mustBe(f.t, err, nil, "count")
	equal(f.t, n, 1, "another sender")
	f.clock.Advance(31 * time.Minute)
	n, err = f.FailedPairing(f.ctx, "telegram", "666")
	mustBe(f.t, err, nil, "count")
	equal(f.t, n, 2, "within the last hour: "+fmt.Sprint(n))
}
