package e2e

import (
	"path/filepath"
	"strings"
	"testing"

	"pulseloop/e2e/e2etest"
	"pulseloop/internal/modeltest"
)

// TestDemoTakesTheAgentThatIsReady: with an agent CLI installed and logged in
// the demonstration uses that one, not the script.
func TestDemoTakesTheAgentThatIsReady(t *testing.T) {
	t.Parallel()
	cli := modeltest.CLI(t, "claude")
	srv := modeltest.Anthropic(modeltest.Script{Prompt: "health endpoint", Turns: [][]modeltest.Step{
		{modeltest.Tool("Bash", map[string]any{"command": "echo 'package main' > health.go", "description": "write the file"})},
		{modeltest.Say("I added health.go.\n<signal>COMPLETE</signal>")}}})
	t.Cleanup(srv.Close)
	p := e2etest.New(t, e2etest.Options{Agent: "-"})
	env := []string{"PATH=" + filepath.Dir(cli) + ":/usr/local/bin:/usr/bin:/bin"}
	for _, kv := range modeltest.ClaudeEnv(t, srv) {
		if !strings.HasPrefix(kv, "PATH=") {
			env = append(env, kv)
		}
	}
	out, errs, code := p.Invoke(e2etest.Invocation{Args: []string{"demo"}, Env: env})
	if code != 0 {
		t.Fatalf("exit code %d\n%s%s", code, out, errs)
	}
	oneAfterTheOther(t, out, "Agent: claude 2.", "✅ [sample] Session complete (1 iteration, 1 commit)", "health.go")
	if strings.Contains(out, "scripted") {
		t.Errorf("the script took part:\n%s", out)
	}
	if v := srv.Violations(); len(v) > 0 {
		t.Errorf("the model server complains: %v", v)
	}
}
