package command

import (
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"

	"pulseloop/agent/cli"
	"pulseloop/agent/cli/clitest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func TestConformance(t *testing.T) {
	clitest.Run(t, clitest.Dialect{
		New:   func(path string, _ time.Duration) cli.Backend { return New(Config{Command: []string{path}}) },
		Text:  func(text string) string { return text },
		Done:  func(final string) string { return final },
		Plain: true,

		Started: func() string { return "" }, Delta: func(string) string { return "" }, Thought: func(string) string { return "" },
		ToolStart: func(string, string) string { return "" }, ToolEnd: func(string, string, bool) string { return "" },
		Fail: func(string) string { return "" },
	})
}

func TestCommand(t *testing.T) {
	t.Setenv("KEY", "k")
	c, err := New(Config{Command: []string{"sh", "-c", "x"}, Model: "m", Pass: []string{"KEY"}, Env: []string{"A=b"}}).Command(cli.Input{})
	if err != nil || strings.Join(c.Args, " ") != "-c x" || strings.Join(c.Env, " ") != "A=b PULSE_MODEL=m" || c.Pass[len(c.Pass)-1] != "KEY" {
		t.Errorf("%+v %v", c, err)
	}
	if !New(Config{}).PlainOutput() {
		t.Error("tool events in its text go unseen")
	}
	if _, err := New(Config{}).Command(cli.Input{}); err == nil || !strings.Contains(err.Error(), "agents.command.command") {
		t.Errorf("no command: %v", err)
	}
}

func TestKeeper(t *testing.T) {
	var k keeper
	block := strings.Repeat("ä", 5_000)
	for range 500 {
		k.add(block)
	}
	k.add("the end")
	got := k.String()
	if len(got) > MaxText+keepBlock || len(got) < MaxText-keepBlock {
		t.Errorf("kept %d bytes", len(got))
	}
	if !strings.HasPrefix(got, "[... the first ") || !strings.HasSuffix(got, "the end") || strings.ContainsRune(got, '\uFFFD') {
		t.Errorf("%.60q ... %q", got, got[len(got)-20:])
	}
	var small keeper
	small.add("a")
	small.add("b")
	if small.String() != "ab" {
		t.Errorf("%q", small.String())
	}
}
