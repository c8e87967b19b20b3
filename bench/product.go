package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"syscall"
	"time"

	"pulseloop/bot/telegram/telegramtest"
	"pulseloop/db"
	"pulseloop/pulse"
)

// product is the real binary as a process, with a data folder of its own.
type product struct {
	name   string // serve, daemon, up
	dir    string
	listen string
	env    []string
	cmd    *exec.Cmd
	ended  chan struct{}
}

// newProduct says how the binary is to be started; extra wins over everything.
func newProduct(name, dir string, extra ...string) (*product, error) {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, fmt.Errorf("make folder: %w", err)
	}
	listen, err := freePort()
	if err != nil {
		return nil, err
	}
	env := []string{"PATH=" + os.Getenv("PATH"), "HOME=" + dir, "TMPDIR=" + os.TempDir(), "PULSE_DATA_DIR=" + dir, "PULSE_HTTP_LISTEN=" + listen,
		"PULSE_DATABASE_URL=" + os.Getenv("BENCH_URL"), "PULSE_AGENT=scripted", "PULSE_SANDBOX=none", "PULSE_LOG_LEVEL=warn"}
	return &product{name: name, dir: dir, listen: listen, env: append(env, extra...)}, nil
}

func (p *product) log() string { return filepath.Join(p.dir, "output") }

// launch starts the program and does not wait for it.
func (p *product) launch(ctx context.Context) error {
	out, err := os.Create(p.log())
	if err != nil {
		return fmt.Errorf("create the log: %w", err)
	}
	defer out.Close()
	p.cmd = exec.CommandContext(ctx, filepath.Join(os.Getenv("BENCH_BIN"), "pulse"), p.name)
	p.cmd.Dir, p.cmd.Env, p.cmd.Stdout, p.cmd.Stderr = p.dir, p.env, out, out
	if err := p.cmd.Start(); err != nil {
		return fmt.Errorf("start pulse %s: %w", p.name, err)
	}
	p.ended = make(chan struct{})
	go func(cmd *exec.Cmd, ended chan struct{}) {
		_ = cmd.Wait() // a signal is an error too
		close(ended)
	}(p.cmd, p.ended)
	return nil
}

// start returns when the program is ready for work.
func (p *product) start(ctx context.Context) error {
	if err := p.launch(ctx); err != nil {
		return err
	}
	client := &http.Client{Timeout: time.Second}
	for begin := time.Now(); p.alive() && time.Since(begin) < 30*time.Second; time.Sleep(2 * time.Millisecond) {
		if p.name == "daemon" {
			if p.said("Waiting for work") {
				return nil
			}
			continue
		}
		res, err := client.Get("http://" + p.listen + "/readyz")
		if err == nil {
			res.Body.Close()
			if res.StatusCode == http.StatusOK {
				return nil
			}
		}
	}
	err := fmt.Errorf("pulse %s ended, or was not ready within 30 s: %s", p.name, p.output())
	p.kill()
	return err
}

func (p *product) output() string {
	raw, err := os.ReadFile(p.log())
	if err != nil {
		return err.Error()
	}
	return string(raw)
}

func (p *product) said(what string) bool { return bytes.Contains([]byte(p.output()), []byte(what)) }

// stop ends the program in order; one that does not run is no trouble.
func (p *product) stop() { p.end(syscall.SIGTERM) }

// kill ends it as a power cut does.
func (p *product) kill() { p.end(syscall.SIGKILL) }

func (p *product) end(how syscall.Signal) {
	if p.cmd == nil {
		return
	}
	_ = p.cmd.Process.Signal(how)
	<-p.ended
	p.cmd = nil
}

func (p *product) alive() bool {
	select {
	case <-p.ended:
		return false
	default:
		return true
	}
}

// telegram starts the fake Bot API and gives the environment that points at it.
func telegram(limits telegramtest.Limits) (*telegramtest.Server, []string, error) {
	tg, err := telegramtest.New(telegramtest.Options{Limits: limits})
	if err != nil {
		return nil, nil, err
	}
	return tg, []string{"PULSE_TELEGRAM_TOKEN=" + tg.Token(), "PULSE_TELEGRAM_API_URL=" + tg.URL()}, nil
}

// furnish puts into the store what a start of people needs: a project, which
// is a small repository in a folder of its own, and the right to speak.
func furnish(ctx context.Context, s *db.Store, repo string, people ...*telegramtest.User) (pulse.Project, error) {
	p := pulse.Project{ID: pulse.ProjectID(pulse.NewUUID(time.Now())), Name: "bench", Path: repo, BaseBranch: "main", Agent: "scripted", CreatedAt: time.Now().UTC()}
	if err := newRepo(repo); err != nil {
		return p, err
	}
	if err := s.Apply(ctx, pulse.Guard{}, pulse.Change{Project: &p}); err != nil {
		return p, err
	}
	for _, u := range people {
		o := pulse.Operator{ID: pulse.OperatorID(pulse.NewUUID(time.Now())), Platform: pulse.PlatformTelegram, UserID: strconv.FormatInt(u.ID, 10),
			Name: u.FirstName, Role: pulse.RoleOperator, CreatedAt: time.Now().UTC()}
		if err := s.Apply(ctx, pulse.Guard{}, pulse.Change{Operator: &o}); err != nil {
			return p, err
		}
	}
	return p, nil
}

func newRepo(dir string) error {
	for _, args := range [][]string{{"init", "-q", "-b", "main", dir}, {"-C", dir, "-c", "user.name=bench", "-c", "user.email=bench@localhost", "commit", "-q", "--allow-empty", "-m", "start"}} {
		if out, err := exec.Command("git", args...).CombinedOutput(); err != nil {
			return fmt.Errorf("make repository: %w\n%s", err, out)
		}
	}
	return nil
}

// within polls until ok.
func within(limit time.Duration, every time.Duration, ok func() (bool, error)) error {
	for end := time.Now().Add(limit); ; time.Sleep(every) {
		done, err := ok()
		if err != nil || done {
			return err
		}
		if time.Now().After(end) {
			return errLate
		}
	}
}

var errLate = errors.New("it took too long")
