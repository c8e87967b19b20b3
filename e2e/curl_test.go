package e2e

import (
	"encoding/json"
	"io"
	"net/http"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"pulseloop/api/wire"
	"pulseloop/e2e/e2etest"
	"pulseloop/pulse"
)

// post sends what curl sends for the document's example, with curl itself where it is installed.
func post(t *testing.T, address, body string) (status int, answer string) {
	t.Helper()
	if _, err := exec.LookPath("curl"); err == nil {
		cmd := exec.Command("sh", "-c", `curl -X POST http://`+address+`/api/pulse/start \
-H 'Content-Type: application/json' \
-d '`+body+`' -sS -w '\n%{http_code}'`)
		cmd.Env = []string{"PATH=/usr/local/bin:/usr/bin:/bin", "NO_PROXY=*"}
		out, err := cmd.Output()
		if err != nil {
			t.Fatalf("curl: %v", err)
		}
		i := strings.LastIndexByte(string(out), '\n')
		status, err = strconv.Atoi(string(out[i+1:]))
		if err != nil {
			t.Fatalf("curl printed %q", out)
		}
		return status, string(out[:i])
	}
	t.Log("curl is not installed; the same request is made without it")
	req, err := http.NewRequestWithContext(e2etest.Context(t), http.MethodPost, "http://"+address+"/api/pulse/start", strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	req.Header = http.Header{"Content-Type": {"application/json"}, "Accept": {"*/*"}, "User-Agent": {"curl/8.0.0"}}
	res, err := http.DefaultClient.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer res.Body.Close()
	b, err := io.ReadAll(res.Body)
	if err != nil {
		t.Fatal(err)
	}
	return res.StatusCode, string(b)
}

func TestTheDocumentsCurlExample(t *testing.T) {
	t.Parallel()
	roots := t.TempDir()
	repo := e2etest.RepoAt(t, filepath.Join(roots, "path"))
	outside := e2etest.RepoAt(t, filepath.Join(t.TempDir(), "path"))
	p := e2etest.Start(t, e2etest.Options{Env: []string{"PULSE_ALLOWED_ROOTS=" + roots}})
	address := "localhost:" + strings.TrimPrefix(p.Addr, "127.0.0.1:")
	example := func(path string) string {
		return `{"projectName":"my-app","projectPath":"` + path + `","goal":"Implement auth","maxIterations":10}`
	}

	for path, why := range map[string]string{
		outside.Path:                    "is not below an allowed root",
		filepath.Join(roots, "nowhere"): "there is nothing at",
		roots:                           "is not a git repository",
		roots + "/../" + filepath.Base(roots) + "x": "there is nothing at",
	} {
		status, answer := post(t, address, example(path))
		var refusal wire.Error
		if err := json.Unmarshal([]byte(answer), &refusal); err != nil || status != http.StatusUnprocessableEntity {
			t.Fatalf("%s: status %d: %s", path, status, answer)
		}
		if e := refusal.Error; e.Code != pulse.CodeUnprocessed || !strings.Contains(e.Message, why) || e.Hint == "" {
			t.Errorf("%s: %+v, want a reason with %q and a hint", path, e, why)
		}
	}
	if n := p.Count("SELECT count(*) FROM pulse_sessions") + p.Count("SELECT count(*) FROM projects"); n != 0 {
		t.Errorf("the refused left %d rows", n)
	}

	status, answer := post(t, address, example(repo.Path))
	if status != http.StatusCreated {
		t.Fatalf("status %d: %s", status, answer)
	}
	var started wire.SessionReply
	if err := json.Unmarshal([]byte(answer), &started); err != nil {
		t.Fatal(err)
	}
	s := started.Session
	if s.ProjectName != "my-app" || s.Goal != "Implement auth" || s.MaxIterations != 10 || s.CreatedBy != pulse.OriginAPI {
		t.Errorf("started: %+v", s)
	}
	done := p.AwaitSession(string(s.ID), pulse.SessionComplete)
	if got := repo.Subjects(done.Session.BranchName); len(got) != 1 || !strings.Contains(got[0], "Implement auth") {
		t.Errorf("commits: %q", got)
	}
	if len(done.Iterations) != 1 || done.Iterations[0].CommitHash != repo.Git("rev-parse", done.Session.BranchName) {
		t.Errorf("iterations: %+v", done.Iterations)
	}
}
