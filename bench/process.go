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
)

// spawns starts a small program by the product's way and by os/exec alone,
// in turn, and measures to its first byte.
func spawns(ctx context.Context, _ []string) (sample, error) {
	const n = 200
	var ours, raw []time.Duration
	for range n {
		begin := time.Now()
		p, err := proc.Start(proc.Spec{Path: "/bin/echo", Args: []string{"x"}, Env: proc.BaseEnv(), Marker: "bench"})
		if err != nil {
			return nil, err
		}
		if _, err := p.Stdout().Read(make([]byte, 1)); err != nil {
			return nil, err
		}
		ours = append(ours, time.Since(begin))
		p.Stop(ctx)

		begin = time.Now()
		cmd := exec.CommandContext(ctx, "/bin/echo", "x")
		out, err := cmd.StdoutPipe()
		if err != nil {
			return nil, err
		}
		if err := cmd.Start(); err != nil {
			return nil, err
		}
		if _, err := out.Read(make([]byte, 1)); err != nil {
			return nil, err
		}
		raw = append(raw, time.Since(begin))
		_, _ = io.Copy(io.Discard, out) // the rest is one byte
		if err := cmd.Wait(); err != nil {
			return nil, err
		}
	}
	a, b := millis(ours), millis(raw)
	return sample{"pulse p50 ms": a["p50 ms"], "raw p50 ms": b["p50 ms"], "more ms": a["p50 ms"] - b["p50 ms"]}, nil
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

// memory is what the process holds in main memory, in MB: VmRSS in all, RssAnon
// without what is only read from files, the program itself above all.
func memory(pid int, what string) float64 {
	raw, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	if err != nil {
		return 0
	}
	for line := range strings.Lines(string(raw)) {
		if rest, ok := strings.CutPrefix(line, what); ok {
			kb, err := strconv.ParseFloat(strings.Fields(rest)[0], 64)
			if err == nil {
				return kb / 1024
			}
		}
	}
	return 0
}

// cpuTime is what the process has used.
func cpuTime(pid int) time.Duration {
	raw, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return 0
	}
	fields := strings.Fields(string(raw[strings.LastIndexByte(string(raw), ')')+1:]))
	ticks := 0
	for _, f := range fields[11:13] { // utime and stime, in hundredths of a second
		n, err := strconv.Atoi(f)
		if err != nil {
			return 0
		}
		ticks += n
	}
	return time.Duration(ticks) * 10 * time.Millisecond
}

// idlePulse is memory and processor time of an installation with a bot that
// has nothing to do, beside sessions that wait.
func idlePulse(waiting int) program {
	return func(ctx context.Context, _ []string) (sample, error) {
		dir := os.Getenv("BENCH_DIR")
		if waiting > 0 {
			s, err := openSQLite(ctx)
			if err != nil {
				return nil, err
			}
			err = errors.Join(fillWaiting(ctx, s, waiting), s.Close())
			if err != nil {
				return nil, err
			}
		}
		cmd, _, stop, err := up(ctx, dir)
		if err != nil {
			return nil, err
		}
		defer stop()
		time.Sleep(6 * time.Second)
		pid, used, begin := cmd.Process.Pid, cpuTime(cmd.Process.Pid), time.Now()
		time.Sleep(10 * time.Second)
		busy := float64(cpuTime(pid)-used) / float64(time.Since(begin))
		return sample{"RSS MB": memory(pid, "VmRSS:"), "of it not in files MB": memory(pid, "RssAnon:"), "CPU %": 100 * busy}, nil
	}
}
