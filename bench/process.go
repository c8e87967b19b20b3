package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"

	"pulseloop/internal/proc"
	"pulseloop/internal/sandbox"
)

// spawns starts a small program in one way and by os/exec alone, in turn, and
// measures to its first byte.
func spawns(way string) program {
	return func(ctx context.Context, _ []string) (sample, error) {
		const n = 200
		spec, release, err := spawnWay(way)
		if err != nil {
			return nil, err
		}
		var ours, raw []time.Duration
		for range n {
			took, err := spawn(ctx, spec)
			if err != nil {
				return nil, err
			}
			ours = append(ours, took)
			if took, err = spawnRaw(ctx, "/bin/echo", "x"); err != nil {
				return nil, err
			}
			raw = append(raw, took)
		}
		release()
		a, b := millis(ours), millis(raw)
		return sample{"p50 ms": a["p50 ms"], "p99 ms": a["p99 ms"], "raw p50 ms": b["p50 ms"], "more ms": a["p50 ms"] - b["p50 ms"]}, nil
	}
}

// spawn measures from the making of the walls, which is a part of each start,
// to the first byte.
func spawn(ctx context.Context, way func() (proc.Spec, func(), error)) (time.Duration, error) {
	begin := time.Now()
	spec, release, err := way()
	if err != nil {
		return 0, err
	}
	defer release()
	spec.Marker = "bench"
	p, err := proc.Start(spec)
	if err != nil {
		return 0, err
	}
	_, err = p.Stdout().Read(make([]byte, 1))
	took := time.Since(begin)
	if exit := p.Stop(ctx); err != nil {
		return 0, fmt.Errorf("read the first byte: %w: %s", err, exit.Stderr)
	}
	return took, nil
}

func spawnRaw(ctx context.Context, argv ...string) (time.Duration, error) {
	begin := time.Now()
	cmd := exec.CommandContext(ctx, argv[0], argv[1:]...)
	out, err := cmd.StdoutPipe()
	if err != nil {
		return 0, err
	}
	if err := cmd.Start(); err != nil {
		return 0, err
	}
	if _, err := out.Read(make([]byte, 1)); err != nil {
		return 0, err
	}
	took := time.Since(begin)
	_, _ = io.Copy(io.Discard, out) // the rest is one byte
	return took, cmd.Wait()
}

// spawnWay gives what is to be started, made anew for each start, and what
// clears away after all of them.
func spawnWay(way string) (func() (proc.Spec, func(), error), func(), error) {
	plain := proc.Spec{Path: "/bin/echo", Args: []string{"x"}, Env: proc.BaseEnv()}
	switch way {
	case "bwrap": // no walls of ours: what the program costs by itself
		plain.Path, plain.Args = "bwrap", []string{"--unshare-pid", "--ro-bind", "/", "/", "--dev", "/dev", "--proc", "/proc", "/bin/echo", "x"}
		fallthrough
	case string(sandbox.None):
		return func() (proc.Spec, func(), error) { return plain, func() {}, nil }, func() {}, nil
	}
	root, err := os.MkdirTemp(os.Getenv("BENCH_BIN"), "household-") // not where temporary files are: that is hidden as a whole
	if err != nil {
		return nil, nil, fmt.Errorf("make folder: %w", err)
	}
	policy, err := household(root)
	if err != nil {
		return nil, nil, err
	}
	policy.Level = sandbox.Level(way)
	box := sandbox.New(sandbox.Config{Self: []string{filepath.Join(os.Getenv("BENCH_BIN"), "pulse"), "sandboxed"}})
	c := sandbox.Command{Path: plain.Path, Args: plain.Args, Dir: policy.Write[0], Env: plain.Env}
	return func() (proc.Spec, func(), error) { return box.Wrap(policy, c) }, func() { _ = os.RemoveAll(root) }, nil
}

// household makes what a policy of the product is about, at the size of a
// person who has a few things: a home of which a third is private, projects,
// trees of other tasks.
func household(root string) (sandbox.Policy, error) {
	p := sandbox.Policy{Write: []string{filepath.Join(root, "data", "worktrees", "w0")}, Temp: filepath.Join(root, "data", "runs", "tmp"),
		Read:   []string{filepath.Join(root, "data", "repos", "r0")},
		Hidden: []string{filepath.Join(root, "data"), "/etc/pulse"}}
	dirs := []string{p.Temp}
	for i := range 60 {
		at := filepath.Join(root, "home", ".config-"+strconv.Itoa(i))
		dirs = append(dirs, at)
		if i%3 == 0 {
			p.Hidden = append(p.Hidden, at, at+"-that-is-not-there")
		}
	}
	for i := range 10 {
		n := strconv.Itoa(i)
		project := filepath.Join(root, "home", "src", "p"+n)
		dirs = append(dirs, filepath.Join(root, "data", "worktrees", "w"+n), filepath.Join(root, "data", "repos", "r"+n), project)
		if i > 0 {
			p.Hidden = append(p.Hidden, project)
		}
	}
	for _, dir := range dirs {
		if err := os.MkdirAll(dir, 0o700); err != nil {
			return p, fmt.Errorf("make folder: %w", err)
		}
	}
	return p, nil
}

// chat is a Bot API that has nothing to say.
func chat() (address string, stop func() error, err error) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return "", nil, fmt.Errorf("listen: %w", err)
	}
	s := &http.Server{Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		switch method := r.URL.Path[strings.LastIndex(r.URL.Path, "/")+1:]; method {
		case "getUpdates":
			select { // a long poll
			case <-r.Context().Done():
			case <-time.After(25 * time.Second):
			}
			io.WriteString(w, `{"ok":true,"result":[]}`)
		case "getMe":
			io.WriteString(w, `{"ok":true,"result":{"id":1,"is_bot":true,"first_name":"pulse","username":"pulse_bot","has_topics_enabled":false}}`)
		default:
			io.WriteString(w, `{"ok":true,"result":true}`)
		}
	})}
	go s.Serve(l)
	return "http://" + l.Addr().String(), s.Close, nil
}

// freePort gives a port that was free a moment ago.
func freePort() (string, error) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return "", fmt.Errorf("find a port: %w", err)
	}
	defer l.Close()
	return l.Addr().String(), nil
}

// up starts the product with SQLite and Telegram and gives it when it is ready.
func up(ctx context.Context, dir string) (cmd *exec.Cmd, took time.Duration, stop func(), err error) {
	address, stopChat, err := chat()
	if err != nil {
		return nil, 0, nil, err
	}
	listen, err := freePort()
	if err != nil {
		return nil, 0, nil, err
	}
	cmd = exec.CommandContext(ctx, filepath.Join(os.Getenv("BENCH_BIN"), "pulse"), "up")
	cmd.Dir = dir
	cmd.Env = []string{"PATH=" + os.Getenv("PATH"), "HOME=" + dir, "PULSE_DATA_DIR=" + dir, "PULSE_HTTP_LISTEN=" + listen,
		"PULSE_TELEGRAM_TOKEN=123456789:" + "AAtesttesttesttesttesttesttesttestt", "PULSE_TELEGRAM_API_URL=" + address, "PULSE_AGENT=scripted"}
	var stderr strings.Builder
	cmd.Stderr = &stderr
	took, err = ready(cmd, "http://"+listen+"/readyz")
	if err != nil {
		return nil, 0, nil, fmt.Errorf("%w\n%s", err, stderr.String())
	}
	return cmd, took, func() {
		_ = cmd.Process.Signal(syscall.SIGTERM)
		_ = cmd.Wait()
		_ = stopChat()
	}, nil
}

// ready starts a program and waits for its page.
func ready(cmd *exec.Cmd, page string) (time.Duration, error) {
	client := &http.Client{Timeout: time.Second}
	begin := time.Now()
	if err := cmd.Start(); err != nil {
		return 0, fmt.Errorf("start %s: %w", cmd.Path, err)
	}
	for time.Since(begin) < 30*time.Second {
		res, err := client.Get(page)
		if err == nil {
			res.Body.Close()
			if res.StatusCode == http.StatusOK {
				return time.Since(begin), nil
			}
		}
		time.Sleep(500 * time.Microsecond)
	}
	_ = cmd.Process.Kill()
	_ = cmd.Wait()
	return 0, errors.New("not ready within 30 s")
}

// startPulse is the second start of an installation: its schema is there.
func startPulse(ctx context.Context, _ []string) (sample, error) {
	dir := os.Getenv("BENCH_DIR")
	_, first, stop, err := up(ctx, dir)
	if err != nil {
		return nil, err
	}
	stop()
	_, took, stop, err := up(ctx, dir)
	if err != nil {
		return nil, err
	}
	stop()
	info, err := os.Stat(filepath.Join(os.Getenv("BENCH_BIN"), "pulse"))
	if err != nil {
		return nil, fmt.Errorf("look at the binary: %w", err)
	}
	return sample{"ready ms": ms(took), "first ready ms": ms(first), "binary MB": float64(info.Size()) / 1e6}, nil
}

func ms(d time.Duration) float64 { return float64(d.Microseconds()) / 1000 }

// startSkeleton is the anchor: a program that opens the same kind of database
// file and serves a page, and nothing else.
func startSkeleton(ctx context.Context, _ []string) (sample, error) {
	listen, err := freePort()
	if err != nil {
		return nil, err
	}
	self, err := os.Executable()
	if err != nil {
		return nil, fmt.Errorf("find this program: %w", err)
	}
	cmd := exec.CommandContext(ctx, self, "run", "skeleton", listen)
	took, err := ready(cmd, "http://"+listen+"/")
	if err != nil {
		return nil, err
	}
	kb := memory(cmd.Process.Pid, "VmRSS:")
	_ = cmd.Process.Kill()
	_ = cmd.Wait()
	return sample{"ready ms": ms(took), "RSS MB": kb}, nil
}

func skeleton(ctx context.Context, args []string) (sample, error) {
	s, err := openSQLite(ctx)
	if err != nil {
		return nil, err
	}
	defer s.Close()
	return nil, http.ListenAndServe(args[0], http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { io.WriteString(w, "ready") }))
}
