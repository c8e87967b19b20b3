// Command pulse is the binary: one file a subcommand, and the only place
// where the parts of the product are wired together. It decides nothing.
package main

import (
	"context"
	"os"
	"os/signal"
	"syscall"

	"pulseloop/internal/sandbox"
)

// version is set by the build.
var version = "dev"

func main() {
	if len(os.Args) > 1 && os.Args[1] == sandboxed {
		// Before anything else: it becomes another program, and is not ours to interrupt.
		os.Exit(sandbox.Main(os.Args[2:], os.Stderr))
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	go func() {
		// The first signal ends things in order; with the default action
		// restored, a second one ends the program at once.
		<-ctx.Done()
		stop()
	}()
	t := systemTerminal()
	t.atOnce = stop
	os.Exit(run(ctx, t, os.Args[1:]))
}
