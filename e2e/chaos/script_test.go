package chaos

import "strings"

// behaviours are what the scripted agents do, by a word in the goal: the steps of each iteration beside its work. The
// last iteration is repeated, so that a session can be followed up for ever.
var behaviours = []struct {
	word       string
	iterations [][]string
}{
	{"quick", [][]string{{`say: "Done at once."`, "signal: COMPLETE"}}},
	{"steady", [][]string{
		{`run: "sleep 0.1"`, `say: "The first part is there."`, "signal: CONTINUE"},
		{`run: "sleep 0.05"`, `say: "The second part is there."`, "signal: CONTINUE"},
		{`say: "All parts are there."`, "signal: COMPLETE"}}},
	{"asking", [][]string{
		{`say: "Which way shall I go?"`, "signal: BLOCKED"},
		{"sleep: 60ms", `say: "I went the way you said."`, "signal: CONTINUE"},
		{`say: "Arrived."`, "signal: COMPLETE"}}},
	{"failing", [][]string{
		{`fail: {error: "the tests do not pass", hint: "look at them"}`},
		{`say: "Now they pass."`, "signal: COMPLETE"}}},
	{"crashing", [][]string{
		{"sleep: 40ms", "crash: {code: 3}"},
		{`say: "It works without the crash."`, "signal: COMPLETE"}}},
	{"leaving", [][]string{
		{`run: "setsid sleep 300 >/dev/null 2>&1 & setsid sh -c 'trap : TERM INT HUP; while :; do sleep 1; done' >/dev/null 2>&1 &"`,
			"sleep: 80ms", `say: "I left something running."`, "signal: CONTINUE"},
		{`say: "It is gone."`, "signal: COMPLETE"}}},
	{"stubborn", [][]string{
		{"ignore_sigterm: true", `run: "sleep 0.3"`, `say: "I do not listen."`, "signal: CONTINUE"},
		{"ignore_sigterm: true", "sleep: 200ms", `say: "Done, by myself."`, "signal: COMPLETE"}}},
	{"endless", [][]string{{"sleep: 30ms", `say: "There is more."`, "signal: CONTINUE"}}},
}

// kinds are the words, the frequent ones more often.
var kinds = []string{"quick", "quick", "steady", "steady", "steady", "asking", "asking", "asking", "failing", "crashing", "leaving", "stubborn", "endless"}

// agents is the script of all of them.
func agents() string {
	var b strings.Builder
	b.WriteString("repeat_last: true\niterations:\n")
	iteration(&b, "  ", []string{`say: "Done {{iteration}}."`, "signal: COMPLETE"})
	b.WriteString("sessions:\n")
	for _, s := range behaviours {
		b.WriteString("  " + s.word + ":\n    repeat_last: true\n    iterations:\n")
		for _, steps := range s.iterations {
			iteration(&b, "      ", steps)
		}
	}
	return b.String()
}

// iteration writes the steps. Each iteration leaves one file that depends on nothing but the goal and the number, so that an
// iteration that runs twice has the same to commit, and a second commit of it is one too many.
func iteration(b *strings.Builder, indent string, steps []string) {
	all := append([]string{
		`think: "iteration {{iteration}}"`,
		`write: {path: "work/{{iteration}}.txt", content: "{{goal}} {{iteration}}\n"}`,
		"usage: {input: 100, output: 10, cache_read: 7, cost: 0.001}",
	}, steps...)
	for i, s := range all {
		mark := "  - "
		if i == 0 {
			mark = "- - "
		}
		b.WriteString(indent + mark + s + "\n")
	}
}
