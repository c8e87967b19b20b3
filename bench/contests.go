package main

import (
	"context"
	"path/filepath"
)

// program measures something once. The rest of the command line is its own.
type program func(ctx context.Context, args []string) (sample, error)

func programs() map[string]program {
	return map[string]program{
		"m1-pulse":         drainPulse(drained, true),
		"m1-pulse-alone":   drainPulse(drained, false),
		"m1-raw":           drainRaw,
		"m3-small":         drainPulse(1000, false),
		"m7-pulse":         cyclesSQLite(false),
		"m7-pulse-session": cyclesSQLite(true),
	}
}

func (b *bench) contests() []contest {
	peer := func(name string) string { return filepath.Join(b.bin, name) }
	_ = peer
	return []contest{
		{
			id: "M1", title: "claim and complete, one task a claim, 8 claimers, PostgreSQL", metric: "cycles/s",
			contenders: []contender{
				{name: "pulse, waking a session", on: postgres, argv: []string{"self", "m1-pulse"}},
				{name: "pulse", on: postgres, argv: []string{"self", "m1-pulse-alone"}},
				{name: "raw pgx", on: postgres, argv: []string{"self", "m1-raw"}},
			},
			ratios: []ratio{
				{what: "pulse, waking a session, to raw pgx", of: "pulse, waking a session", metric: "cycles/s", to: "raw pgx", goal: 0.85, least: true},
				{what: "pulse to raw pgx", of: "pulse", metric: "cycles/s", to: "raw pgx", goal: 0.85, least: true},
			},
		},
		{
			id: "M7", title: "enqueue, claim and complete on SQLite, synchronous=FULL, 8 clients", metric: "cycles/s",
			contenders: []contender{
				{name: "pulse", on: sqlite, argv: []string{"self", "m7-pulse"}},
				{name: "pulse, waking a session", on: sqlite, argv: []string{"self", "m7-pulse-session"}},
			},
		},
	}
}
