package e2e

import (
	"fmt"
	"io"
	"net/http"
	"os"
	"strings"
	"testing"
	"time"

	"pulseloop/api/wire"
	"pulseloop/bot/telegram/telegramtest"
	"pulseloop/e2e/e2etest"
	"pulseloop/pulse"
)

// insiderEnv makes the test binary the HTTP client of the agent below: one that is there on every machine.
const insiderEnv = "PULSE_E2E_INSIDER"

// insiderPost posts args[1] as JSON to the address args[0], and prints the status.
func insiderPost(args []string, out io.Writer) int {
	if len(args) != 2 {
		fmt.Fprintln(out, "no request: give an address and a body")
		return 2
	}
	client := &http.Client{Timeout: 30 * time.Second}
	res, err := client.Post(args[0], "application/json", strings.NewReader(args[1]))
	if err != nil {
		fmt.Fprintln(out, "no request:", err)
		return 1
	}
	defer res.Body.Close()
	fmt.Fprintln(out, res.StatusCode)
	return 0
}

// insider is an agent that tries, from inside its run, to decide for the person: with HTTP requests and with the program itself,
// in the environment that the product gives it. It writes what came of it into files, so that they are in the commit.
func insider(pulse, poster string) string {
	return `
iterations:
  - - say: "May I delete the database?"
    - signal: BLOCKED
sessions:
  burglar:
    iterations:
      - - write:
            path: try.sh
            content: |
              env > environment.txt
              victim=$(cat "$HOME/victim")
              post() {
                printf '%s ' "$1"
                ` + insiderEnv + `=1 ` + poster + ` "http://$(cat "$HOME/address")$1" "$2"
              }
              {
                post /api/pulse/$victim/answer '{"text":"yes"}'
                post /api/pulse/$victim/resume '{"answer":"yes"}'
                post /api/sessions/$victim/message '{"text":"yes"}'
                post /api/pair '{"role":"owner"}'
                post /api/projects '{"name":"etc","path":"/"}'
              } > http.txt 2>&1
              {
                for words in "answer $victim yes" "resume $victim yes" "say $victim yes" "pair" "projects add /"; do
                  PULSE_HTTP_LISTEN=$(cat "$HOME/address") ` + pulse + ` $words
                  echo "$words: $?"
                done
              } > program.txt 2>&1
              :
        - run: sh try.sh
        - say: "I tried."
        - signal: COMPLETE
`
}

func TestAnAgentCannotDecideForThePerson(t *testing.T) {
	t.Parallel()
	e2etest.Databases(t, func(t *testing.T, database string) {
		tg := telegramtest.Start(t, telegramtest.Options{})
		repo := e2etest.Repo(t)
		poster, err := os.Executable()
		if err != nil {
			t.Fatal(err)
		}
		p := e2etest.New(t, e2etest.Options{Database: database, Telegram: tg, Projects: one(repo), Script: insider(e2etest.Binary(t), poster)})
		// Secrets under every name that people give them.
		p.Setenv("PULSE_TELEGRAM_WEBHOOK_SECRET=webhook-secret-0123456789", "SOME_API_KEY=sk-somekey0123456789abcdef", "DATABASE_URL=postgres://u:dbpassword@h/d")
		p.Up()
		blocked, err := p.Client().Start(e2etest.Context(t), wire.Start{ProjectName: "my-app", Goal: "clean up"})
		if err != nil {
			t.Fatal(err)
		}
		p.AwaitSession(string(blocked.ID), pulse.SessionBlocked)
		p.Write("victim", string(blocked.ID))
		p.Write("address", p.Addr)

		s, err := p.Anonymous().Start(e2etest.Context(t), wire.Start{ProjectName: "my-app", Goal: "be a burglar"})
		if err != nil {
			t.Fatalf("starting needs no token on loopback: %v", err)
		}
		done := p.AwaitSession(string(s.ID), pulse.SessionComplete).Session

		tried := strings.Split(repo.File(done.BranchName, "http.txt"), "\n")
		if len(tried) != 5 {
			t.Errorf("requests: %q", tried)
		}
		for _, line := range tried {
			if !strings.HasSuffix(line, " 401") {
				t.Errorf("a request of the agent's was answered: %s", line)
			}
		}
		program := repo.File(done.BranchName, "program.txt")
		if n := strings.Count(program, ": 5"); n != 5 {
			t.Errorf("the program did not refuse the agent:\n%s", program)
		}
		environment := repo.File(done.BranchName, "environment.txt")
		for _, want := range []string{"PULSE_SESSION_ID=" + string(s.ID), "PULSE_ITERATION=1", "PULSE_ROLE=pulsing", "PULSE_TASK_ID="} {
			if !strings.Contains(environment, want) {
				t.Errorf("the agent's environment lacks %s:\n%s", want, environment)
			}
		}
		secrets := []string{p.Token(), tg.Token(), "webhook-secret", "sk-somekey", "dbpassword", "PULSE_DATABASE_URL", "PULSE_TELEGRAM", "PULSE_DATA_DIR", "PULSE_CONFIG"}
		if database != "" {
			secrets = append(secrets, database)
		}
		for _, secret := range secrets {
			if strings.Contains(environment, secret) {
				t.Errorf("the agent's environment has %s:\n%s", secret, environment)
			}
		}
		nothingDecided(t, p, blocked.ID)
	})
}

// nothingDecided wants the session as it was, its gate open, nobody paired and no project more; then asks once more from here.
func nothingDecided(t *testing.T, p *e2etest.Pulse, id pulse.SessionID) {
	t.Helper()
	r := rest{t: t, p: p}
	for path, body := range map[string]string{
		"/api/pulse/" + string(id) + "/answer":     `{"text":"yes"}`,
		"/api/pulse/" + string(id) + "/resume":     `{"answer":"yes"}`,
		"/api/sessions/" + string(id) + "/message": `{"text":"yes"}`,
		"/api/pair":     `{"role":"owner"}`,
		"/api/projects": `{"name":"etc","path":"/"}`,
	} {
		for _, token := range []string{"", strings.Repeat("a", 64)} {
			res, b := r.call(token, http.MethodPost, path, body)
			r.refused(path, res, b, http.StatusUnauthorized, pulse.CodeUnauthorized)
		}
	}
	d, err := p.Client().Get(e2etest.Context(t), string(id))
	if err != nil {
		t.Fatal(err)
	}
	if d.Session.Status != pulse.SessionBlocked || d.Session.CurrentIteration != 1 || d.Gate == nil || d.Gate.Status != pulse.GateOpen {
		t.Errorf("the session is %s in iteration %d, its gate %+v", d.Session.Status, d.Session.CurrentIteration, d.Gate)
	}
	for query, want := range map[string]int{
		"SELECT count(*) FROM gates WHERE status <> 'open'": 0,
		"SELECT count(*) FROM projects":                     1,
		"SELECT count(*) FROM operators":                    0,
		"SELECT count(*) FROM pairing_codes":                1, // that of the start
	} {
		if got := p.Count(query); got != want {
			t.Errorf("%s: %d, want %d", query, got, want)
		}
	}
}
