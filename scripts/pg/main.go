// Command pg runs a command with a private PostgreSQL: pg [-durable] -- COMMAND ARGS...
//
// It owns one cluster in a temporary folder, on a free loopback port, and the address of it in PULSE_TEST_DATABASE_URL.
// When the command ends, or pg is interrupted, the cluster is stopped and its folder removed; when pg itself is killed,
// the kernel stops the server. Where PULSE_TEST_DATABASE_URL is set already, pg only runs the command. No system
// cluster is touched. The command's exit status is pg's own.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"runtime"
	"syscall"
	"time"
)

const urlVar = "PULSE_TEST_DATABASE_URL"

func main() {
	durable := flag.Bool("durable", false, "keep fsync on, for measurements")
	flag.Parse()
	if flag.NArg() == 0 {
		fmt.Fprintln(os.Stderr, "usage: pg [-durable] -- COMMAND ARGS...")
		os.Exit(2)
	}
	signals := make(chan os.Signal, 4)
	signal.Notify(signals, os.Interrupt, syscall.SIGTERM, syscall.SIGHUP)
	code, err := run(signals, *durable, flag.Args())
	if err != nil {
		fmt.Fprintln(os.Stderr, "pg:", err)
	}
	os.Exit(code)
}

func run(signals <-chan os.Signal, durable bool, command []string) (int, error) {
	// A parent-death signal is tied to the thread that forked, so this goroutine must stay on one that lives as long
	// as the program does.
	runtime.LockOSThread()
	env := os.Environ()
	if os.Getenv(urlVar) == "" {
		ctx, cancel := context.WithCancel(context.Background())
		defer cancel()
		starting := make(chan struct{})
		interrupted := make(chan os.Signal, 1)
		go func() {
			select {
			case s := <-signals:
				interrupted <- s
				cancel()
			case <-starting:
			}
		}()
		c, err := startCluster(ctx, durable)
		close(starting)
		if err != nil {
			return without(err, interrupted, signals, command)
		}
		defer c.stop()
		if len(interrupted) > 0 {
			return 130, errors.New("interrupted")
		}
		env = append(env, urlVar+"="+c.url)
	}
	return runCommand(signals, env, command)
}

// without goes on where PostgreSQL is not installed: the tests that need one say so and skip. In CI that is a failure.
func without(err error, interrupted <-chan os.Signal, signals <-chan os.Signal, command []string) (int, error) {
	if len(interrupted) > 0 {
		return 130, errors.New("interrupted")
	}
	if !errors.Is(err, errNotInstalled) || os.Getenv("CI") == "true" {
		return 1, err
	}
	fmt.Fprintln(os.Stderr, "pg:", err, "- going on without")
	return runCommand(signals, os.Environ(), command)
}

// runCommand gives the command a process group of its own, so that an interrupt reaches it once, through us.
func runCommand(signals <-chan os.Signal, env, command []string) (int, error) {
	cmd := exec.Command(command[0], command[1:]...)
	cmd.Env = env
	cmd.Stdin, cmd.Stdout, cmd.Stderr = nil, os.Stdout, os.Stderr
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGTERM}
	if err := cmd.Start(); err != nil {
		return 1, fmt.Errorf("start command: %w", err)
	}
	done := make(chan error, 1)
	go func() { done <- cmd.Wait() }()
	var kill <-chan time.Time
	for {
		select {
		case err := <-done:
			return exitCode(err)
		case s := <-signals:
			syscall.Kill(-cmd.Process.Pid, s.(syscall.Signal))
			if kill == nil {
				kill = time.After(15 * time.Second)
			}
		case <-kill:
			syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL)
		}
	}
}

func exitCode(err error) (int, error) {
	if exit := (*exec.ExitError)(nil); errors.As(err, &exit) {
		if exit.ExitCode() < 0 {
			return 1, fmt.Errorf("run command: %w", err)
		}
		return exit.ExitCode(), nil
	}
	if err != nil {
		return 1, fmt.Errorf("run command: %w", err)
	}
	return 0, nil
}
