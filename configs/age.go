package configs

import (
	"errors"
	"math"
	"strconv"
	"strings"
	"time"
)

// Age is how long something is kept, as it was written: days such as 90d, a duration such as 36h, or 0 for ever. It stays a text
// until it is checked, so that what is wrong with it is told with its key.
type Age string

const day = 24 * time.Hour

// Duration is the age as the rest of the program takes it, of a tree that was validated.
func (a Age) Duration() time.Duration {
	d, _ := a.parse()
	return d
}

func (a Age) parse() (time.Duration, error) {
	text := strings.TrimSpace(string(a))
	if text == "" {
		return 0, nil
	}
	days, inDays := strings.CutSuffix(text, "d")
	if !inDays {
		return time.ParseDuration(text)
	}
	n, err := strconv.ParseInt(days, 10, 64)
	if err == nil && n > int64(math.MaxInt64/day) {
		err = errors.New("too long")
	}
	return time.Duration(n) * day, err
}

// Retention is how long what is over is kept. Sessions themselves, their iterations and numbers, and the audit are kept for ever.
// What belongs to a session counts from the session's end.
type Retention struct {
	Events    Age `yaml:"events"`    // what happened, step by step
	Turns     Age `yaml:"turns"`     // what was said, thought and done: what later sessions remember
	Prompts   Age `yaml:"prompts"`   // the exact prompts
	Messages  Age `yaml:"messages"`  // what came in and went out
	Deltas    Age `yaml:"deltas"`    // text on its way, once its turn is over
	Worktrees Age `yaml:"worktrees"` // trees of sessions at their end, once all of their work is on its branch
}

// ages are the keys with the least that a promise needs: a platform may repeat an update for a day, a follow-up comes soon, and who
// reads along reads deltas a moment later.
func (r Retention) ages() []leastAge {
	return []leastAge{
		{"events", r.Events, time.Hour, "1h"}, {"turns", r.Turns, time.Hour, "1h"}, {"prompts", r.Prompts, time.Hour, "1h"},
		{"messages", r.Messages, 2 * day, "2d, because a platform may repeat an update for a day"},
		{"deltas", r.Deltas, 10 * time.Second, "10s"}, {"worktrees", r.Worktrees, time.Minute, "1m"},
	}
}

type leastAge struct {
	key   string
	age   Age
	least time.Duration
	words string
}

func (r Retention) validate(bad func(string, string, ...any)) {
	for _, l := range r.ages() {
		switch d, err := l.age.parse(); {
		case err != nil:
			bad("retention."+l.key, "%q is no age; write days such as 90d, a duration such as 36h, or 0 to keep it for ever", string(l.age))
		case d != 0 && d < l.least:
			bad("retention."+l.key, "is %s; write at least %s, or 0 to keep it for ever", l.age, l.words)
		}
	}
}
