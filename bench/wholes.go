package main

// wholePrograms measure the whole product, or what is left of it after a fault.
func wholePrograms() map[string]program {
	return map[string]program{
		"m17":         goalsFromChat,
		"m18":         progressInChats(false),
		"m18-limited": progressInChats(true),
		"r1":          rescue,
		"r2-pulse":    through(outagePulse),
		"r2-river":    through(outagePeer),
		"r3":          updatesOverKills(20),
		"r4":          enqueueOverKills(100),
		"r4-writer":   enqueueUntilKilled,
	}
}

// wholes have fewer rounds than the others where one takes long.
func (b *bench) wholes() []contest {
	return append(b.chats(), b.faults()...)
}

func (b *bench) chats() []contest {
	return []contest{
		{
			id: "M17", title: "from an update to its committed goal and its acknowledgement, 50 a second", metric: "p50 ms",
			contenders: []contender{ours("SQLite", sqlite, "m17"), ours("PostgreSQL", postgres, "m17")},
			ratios: []ratio{
				{what: "SQLite p99, ms", of: "SQLite", metric: "p99 ms", goal: 50},
				{what: "PostgreSQL p99, ms", of: "PostgreSQL", metric: "p99 ms", goal: 50},
			},
		},
		{
			id: "M18", title: "from an agent's line to the chat: 3 private chats and a group, Telegram's limits enforced", metric: "first line ms", rounds: 3,
			contenders: []contender{ours("steady", sqlite, "m18"), ours("with retry_after injected", sqlite, "m18-limited")},
			ratios: []ratio{
				{what: "first line visible, private, ms", of: "steady", metric: "first line ms", goal: 1000},
				{what: "first line visible, slowest of all four, ms", of: "steady", metric: "first line, slowest chat ms"},
				{what: "between edits, private, ms", of: "steady", metric: "edit gap private ms", goal: 1100},
				{what: "between edits, group, ms", of: "steady", metric: "edit gap group ms", goal: 3100},
				{what: "edits after the final", of: "steady", metric: "edits after the final", never: true},
				{what: "of them of work, not of its end", of: "steady", metric: "of them live", never: true},
				{what: "calls refused with 429, none injected", of: "steady", metric: "429", never: true},
				{what: "retry_after not obeyed", of: "with retry_after injected", metric: "retry_after not obeyed", never: true},
				{what: "edits after the final, with retry_after", of: "with retry_after injected", metric: "edits after the final", never: true},
			},
		},
	}
}

func (b *bench) faults() []contest {
	return []contest{
		{
			id: "R1", title: "a daemon killed in the middle of a task: until it runs with another, PostgreSQL, lease 30 s", metric: "s", rounds: 3,
			contenders: []contender{ours("pulse serve and two daemons", postgres, "r1")},
			ratios:     []ratio{{what: "kill to running elsewhere, s", of: "pulse serve and two daemons", metric: "s", goal: 35}},
		},
		{
			id: "R2", title: "PostgreSQL stopped hard for 5 s: 8 workers, jobs of 0.2 s, a backlog of 2.5 s", metric: "first ms", rounds: 3,
			contenders: []contender{
				{name: "pulse", argv: []string{"self", "r2-pulse"}, needs: initdb()}, {name: "River", argv: []string{"self", "r2-river"}, needs: b.peer("river")},
			},
			ratios: []ratio{
				{what: "pulse, first dispatch, ms", of: "pulse", metric: "first ms", goal: 500},
				{what: "pulse, tail drained, s", of: "pulse", metric: "drained s", goal: 5},
				{what: "pulse, jobs never done", of: "pulse", metric: "never done", never: true},
				{what: "pulse drained to River drained", of: "pulse", metric: "drained s", to: "River"},
			},
		},
		{
			id: "R3", title: "SIGKILL, 20 times, while people state 50 goals a second, SQLite", metric: "lost", rounds: 3,
			contenders: []contender{ours("pulse serve", sqlite, "r3")},
			ratios: []ratio{
				{what: "updates lost", of: "pulse serve", metric: "lost", never: true},
				{what: "goals begun twice", of: "pulse serve", metric: "twice", never: true},
			},
		},
		{
			id: "R4", title: "SIGKILL, 100 times, while 8 clients put in tasks, SQLite, synchronous=FULL", metric: "lost", rounds: 3,
			contenders: []contender{ours("pulse", sqlite, "r4")},
			ratios:     []ratio{{what: "acknowledged tasks lost", of: "pulse", metric: "lost", never: true}},
		},
	}
}
