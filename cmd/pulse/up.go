package main

import (
	"context"
	"fmt"
	"net"
	"time"

	"github.com/spf13/cobra"

	"pulseloop/agent/cli"
	"pulseloop/configs"
	"pulseloop/pulse"
)

func newUp(o *options) *cobra.Command {
	return &cobra.Command{
		Use: "up", Short: "Run everything in this process", Args: cobra.NoArgs,
		Long: "Runs the bots, the API, the loop and the agents in one process, with an embedded database unless database_url says otherwise.\n" +
			"In a terminal the conversation is there too: type a goal.",
		RunE: func(cmd *cobra.Command, _ []string) error {
			return o.serve(cmd.Context(), parts{front: true, agents: true, console: o.tty})
		},
	}
}

func newServe(o *options) *cobra.Command {
	return &cobra.Command{
		Use: "serve", Short: "Run bots, API and loop, but no agents", Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error { return o.serve(cmd.Context(), parts{front: true}) },
	}
}

func newDaemon(o *options) *cobra.Command {
	return &cobra.Command{
		Use: "daemon", Short: "Run agents for a `pulse serve` on the same PostgreSQL database", Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			cfg, err := o.load()
			if err != nil {
				return err
			}
			if cfg.DatabaseURL == "" {
				return pulse.Invalid("a daemon of its own needs PostgreSQL: the embedded database belongs to one process",
					"set database_url (PULSE_DATABASE_URL), or use `pulse up`, which runs agents too")
			}
			return o.serve(cmd.Context(), parts{agents: true})
		},
	}
}

// serve runs the parts until the context ends.
func (o *options) serve(ctx context.Context, p parts) error {
	cfg, err := o.load()
	if err != nil {
		return err
	}
	all := backends(cfg)
	name, probe := defaultAgent(ctx, cfg, all, fallbackAgent(cfg))
	o.printf("pulse %s\n", version)
	listening := make(chan net.Addr, 1)
	p.onReady = func(a net.Addr) { listening <- a }
	a, err := assemble(ctx, o, cfg, name, p)
	if err != nil {
		return err
	}
	defer a.Close()
	if p.agents {
		a.sayAgent(probe)
		if name != "command" && hasCommand(cfg) {
			if c := all["command"].Probe(ctx); !c.Ready() {
				a.sayAgent(c)
			}
		}
		a.runs["farewell"] = a.farewell
	}
	if p.front {
		if err := a.sayPairing(ctx); err != nil {
			return err
		}
		a.runs["greeting"] = func(ctx context.Context) error {
			select {
			case <-ctx.Done():
			case addr := <-listening:
				a.say("Listening on http://%s\n", addr)
				a.outlook(ctx, "Going on")
			}
			return nil
		}
	} else {
		o.printf("Waiting for work\n")
	}
	if err := a.Run(ctx); err != nil || !p.agents || !p.front {
		return err
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), 2*time.Second)
	defer cancel()
	a.outlook(ctx, "Goes on at the next start")
	return nil
}

func (a *app) sayAgent(p cli.Probe) {
	switch {
	case p.Ready():
		a.o.printf("Agent: %s %s\n", p.Name, p.Version)
	default:
		a.o.printf("Agent: %s cannot run yet: %s\n  → %s\n", p.Name, p.Problem, p.Fix)
	}
}

// sayPairing prints a one-time code while nobody may speak to the bot yet.
func (a *app) sayPairing(ctx context.Context) error {
	if a.cfg.Telegram.Token == "" {
		return nil
	}
	n, err := a.store.CountOperators(ctx, pulse.PlatformTelegram)
	if err != nil || n > 0 {
		return err
	}
	code, expires, err := pairer{a.store}.NewCode(ctx, pulse.RoleOwner)
	if err != nil {
		return fmt.Errorf("make a pairing code: %w", err)
	}
	a.o.printf("Nobody may speak to the bot yet. Send it within %s:\n\n    /pair %s\n\n(`pulse pair` makes another code.)\n",
		inWords(time.Until(expires)), code)
	return nil
}

// baseURL is where this machine's own server is reached.
func baseURL(c configs.Config) string {
	host, port, err := net.SplitHostPort(c.HTTP.Listen)
	if err != nil {
		return "http://" + c.HTTP.Listen
	}
	if ip := net.ParseIP(host); host == "" || ip != nil && ip.IsUnspecified() {
		host = "127.0.0.1"
	}
	return "http://" + net.JoinHostPort(host, port)
}
