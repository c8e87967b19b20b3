package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"
)

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

// cpuTime is what the threads of the process have used, to the nanosecond:
// the usual counter counts in hundredths of a second, too coarse for a
// process at rest.
func cpuTime(pid int) (time.Duration, error) {
	threads, err := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/schedstat", pid))
	if err != nil || len(threads) == 0 {
		return 0, fmt.Errorf("read the time of process %d: %w", pid, errors.Join(err, os.ErrNotExist))
	}
	total := time.Duration(0)
	for _, t := range threads {
		raw, err := os.ReadFile(t)
		if err != nil {
			return 0, fmt.Errorf("read the time of a thread: %w", err)
		}
		used, err := strconv.ParseInt(strings.Fields(string(raw))[0], 10, 64)
		if err != nil {
			return 0, fmt.Errorf("read the time of a thread: %w", err)
		}
		total += time.Duration(used)
	}
	return total, nil
}

// A program is at rest when its start is over, and what it looks for in the
// seconds after something happened.
const (
	restAfter = 20 * time.Second
	restFor   = 20 * time.Second
)

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
		pid := cmd.Process.Pid
		time.Sleep(2 * time.Second)
		early := memory(pid, "VmRSS:")
		time.Sleep(restAfter - 2*time.Second)
		used, err := cpuTime(pid)
		if err != nil {
			return nil, err
		}
		begin := time.Now()
		time.Sleep(restFor)
		later, err := cpuTime(pid)
		if err != nil {
			return nil, err
		}
		busy := float64(later-used) / float64(time.Since(begin))
		return sample{"RSS MB": memory(pid, "VmRSS:"), "of it not in files MB": memory(pid, "RssAnon:"), "RSS after 2 s MB": early, "CPU %": 100 * busy}, nil
	}
}
