package main

import (
	"context"
	"os"
	"time"

	"pulseloop/agent/cli"
	"pulseloop/agent/cli/claude"
	"pulseloop/agent/cli/codex"
	"pulseloop/agent/cli/command"
	"pulseloop/agent/cli/scripted"
	"pulseloop/configs"
)

// backends makes every agent this version knows, by the name people type.
func backends(c configs.Config) map[string]cli.Backend {
	self, err := os.Executable()
	if err != nil {
		self = os.Args[0]
	}
	// One that has given its result must not be taken for one that hangs.
	linger := min(c.Daemon.Linger, c.Loop.SilenceLimit/2)
	cl, co, cm, sc := c.Agents["claude"], c.Agents["codex"], c.Agents["command"], c.Agents["scripted"]
	return map[string]cli.Backend{
		"claude":   claude.New(claude.Config{Path: cl.Path, Model: cl.Model, Args: cl.Args, Linger: linger}),
		"codex":    codex.New(codex.Config{Path: co.Path, Model: co.Model, Args: co.Args, Linger: linger}),
		"command":  command.New(command.Config{Command: cm.Command}),
		"scripted": scripted.New(scripted.Config{Self: self, Args: []string{"scripted-agent"}, Script: sc.Script, Linger: linger}),
	}
}

// preference is the order in which a default agent is looked for.
var preference = []string{"claude", "codex", "command"}

// probeAll asks every backend what it is, in the order of preference.
func probeAll(ctx context.Context, all map[string]cli.Backend) []cli.Probe {
	ctx, cancel := context.WithTimeout(ctx, 20*time.Second)
	defer cancel()
	var out []cli.Probe
	for _, name := range append(append([]string{}, preference...), "scripted") {
		if b, ok := all[name]; ok {
			out = append(out, b.Probe(ctx))
		}
	}
	return out
}

// fallbackAgent is who works when none is ready: the one whose trouble is told.
func fallbackAgent(c configs.Config) string {
	if hasCommand(c) {
		return "command"
	}
	return preference[0]
}

// defaultAgent is the configured one, else the first that is ready, else
// fallback; "" as fallback means none.
func defaultAgent(ctx context.Context, c configs.Config, all map[string]cli.Backend, fallback string) (string, cli.Probe) {
	if c.Agent != "" {
		return c.Agent, all[c.Agent].Probe(ctx)
	}
	ctx, cancel := context.WithTimeout(ctx, 20*time.Second)
	defer cancel()
	for _, name := range preference {
		if p := all[name].Probe(ctx); p.Ready() {
			return name, p
		}
	}
	if fallback == "" {
		return "", cli.Probe{}
	}
	return fallback, all[fallback].Probe(ctx)
}

// hasCommand reports whether a program of the person's own was named as the agent.
func hasCommand(c configs.Config) bool { return len(c.Agents["command"].Command) > 0 }
