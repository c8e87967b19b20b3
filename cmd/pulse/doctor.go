package main

import (
	"context"
	"time"

	"github.com/spf13/cobra"

	"pulseloop/configs"
)

// state is how a check came out.
type state string

const (
	stateOK   state = "ok"
	stateWarn state = "warn" // works, but somebody should know
	stateFail state = "fail"
)

// finding is the outcome of one check. Everything but ok has a fix.
type finding struct {
	Check  string `json:"check"`
	State  state  `json:"state"`
	Detail string `json:"detail"`
	Fix    string `json:"fix,omitempty"`
}

func ok(detail string) finding        { return finding{State: stateOK, Detail: detail} }
func warn(detail, fix string) finding { return finding{State: stateWarn, Detail: detail, Fix: fix} }
func fail(detail, fix string) finding { return finding{State: stateFail, Detail: detail, Fix: fix} }

// check is one thing that doctor looks at. It may give several findings.
type check struct {
	name string
	run  func(ctx context.Context, cfg configs.Config) []finding
}

// checks lists all of them, in the order in which trouble is best fixed.
func (o *options) checks() []check {
	return []check{
		{"data directory", checkDataDir},
		{"disk", checkDisk},
		{"token", checkToken},
		{"git", checkGit},
		{"database", checkDatabase},
		{"http", checkHTTP},
		{"agents", checkAgents},
		{"projects", checkProjects},
		{"telegram", checkTelegram},
		{"pairing", o.checkPairing},
		{"sandbox", checkSandbox},
		{"leftovers", checkLeftovers},
	}
}

func newDoctor(o *options) *cobra.Command {
	return &cobra.Command{
		Use: "doctor", Short: "Check the whole set-up and name the fix for what is wrong", Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			found := o.examine(cmd.Context())
			failed := 0
			for _, f := range found {
				if f.State == stateFail {
					failed++
				}
			}
			if o.json {
				if err := o.printJSON(found); err != nil {
					return err
				}
			} else {
				o.printFindings(found)
			}
			if failed > 0 {
				return exitError(exitFailure)
			}
			return nil
		},
	}
}

// examine runs every check. Without a usable configuration nothing else can
// be judged.
func (o *options) examine(ctx context.Context) []finding {
	cfg, err := configs.Load(o.config, o.env)
	if err != nil {
		f := fail(err.Error(), "correct the file or the variable named; configs/pulse.example.yaml shows every key")
		f.Check = "configuration"
		return []finding{f}
	}
	from := "defaults and environment"
	if cfg.File != "" {
		from = cfg.File
	}
	all := []finding{{Check: "configuration", State: stateOK, Detail: from}}
	for _, c := range o.checks() {
		ctx, cancel := context.WithTimeout(ctx, 30*time.Second)
		for _, f := range c.run(ctx, cfg) {
			f.Check = c.name
			all = append(all, f)
		}
		cancel()
	}
	return all
}

func (o *options) printFindings(all []finding) {
	signs := map[state]string{stateOK: "✓", stateWarn: "!", stateFail: "✗"}
	for _, f := range all {
		o.printf("%s %-14s %s\n", signs[f.State], f.Check, f.Detail)
		if f.Fix != "" {
			o.printf("  %-14s → %s\n", "", f.Fix)
		}
	}
}
