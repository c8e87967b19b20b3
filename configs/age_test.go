package configs_test

import (
	"strings"
	"testing"
	"time"

	"pulseloop/configs"
)

func TestRetentionIsReadAsWritten(t *testing.T) {
	file := write(t, "retention: {events: 0, turns: 7d, prompts: 36h, messages: \"2d\", worktrees: 90m}\n", 0o600)
	c, err := configs.Load(file, env("PULSE_RETENTION_DELTAS", "0", "PULSE_RETENTION_TURNS", "400d"))
	if err != nil {
		t.Fatal(err)
	}
	for name, got := range map[string][2]time.Duration{
		"events": {c.Retention.Events.Duration(), 0}, "turns": {c.Retention.Turns.Duration(), 400 * 24 * time.Hour}, "prompts": {c.Retention.Prompts.Duration(), 36 * time.Hour},
		"messages": {c.Retention.Messages.Duration(), 48 * time.Hour}, "deltas": {c.Retention.Deltas.Duration(), 0}, "worktrees": {c.Retention.Worktrees.Duration(), 90 * time.Minute},
	} {
		if got[0] != got[1] {
			t.Errorf("%s is read as %s, want %s", name, got[0], got[1])
		}
	}
	text, err := configs.Text(c)
	if err != nil || !strings.Contains(text, "turns: 400d") || !strings.Contains(text, "prompts: 36h") {
		t.Errorf("printed as %s, %v", text, err)
	}
}

func TestRetentionThatBreaksAPromiseIsRefused(t *testing.T) {
	for value, parts := range map[string][]string{
		"messages: 1d":              {"retention.messages", "is 1d; write at least 2d, because a platform may repeat an update"},
		"events: 5m":                {"retention.events", "is 5m; write at least 1h"},
		"turns: -3h":                {"retention.turns", "at least 1h"},
		"prompts: -3d":              {"prompts", "is -3d; write at least 1h"},
		"events: soon":              {"retention.events", `"soon" is no age; write days such as 90d, a duration such as 36h, or 0`},
		"events: 99999999999999d":   {"events", "is no age"},
		"deltas: 1s":                {"retention.deltas", "at least 10s"},
		"worktrees: 1s":             {"retention.worktrees", "at least 1m"},
		"everything: 3d":            {"everything"},
		"events: 1.5d":              {"events", "is no age"},
		"events: [1d]":              {"events"},
		"{events: 1d, messages: 5}": {"messages"},
	} {
		text := "retention:\n  " + value + "\n"
		if strings.HasPrefix(value, "{") {
			text = "retention: " + value + "\n"
		}
		_, err := configs.Load(write(t, text, 0o600), env())
		if err == nil {
			t.Errorf("%s is accepted", value)
			continue
		}
		for _, part := range parts {
			if !strings.Contains(err.Error(), part) {
				t.Errorf("%s: the error does not say %q: %v", value, part, err)
			}
		}
	}
}
