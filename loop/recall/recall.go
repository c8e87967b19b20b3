// Package recall owns what an iteration knows of the past: it finds the
// anchor from which context starts, cuts a slice of turns around it, and
// builds the prompt. It reads turns through Store and writes nothing; the
// loop stores what it answers. All methods may be called at once.
package recall

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"time"

	"pulseloop/loop"
	"pulseloop/pulse"
)

// Config is the builder's limits. Zero fields take defaults.
type Config struct {
	Clock       func() time.Time
	TurnBudget  int // estimated tokens of earlier turns in a prompt: 6,000
	TurnTokens  int // of a single turn: 1,200
	Candidates  int // turns asked of the full-text search: 8
	MaxProgress int // lines of the progress log: 20
}

// Builder prepares prompts.
type Builder struct {
	store Store
	cfg   Config
}

// New returns a Builder over a store of turns.
func New(store Store, cfg Config) *Builder {
	if cfg.Clock == nil {
		cfg.Clock = time.Now
	}
	cfg.TurnBudget = cmp.Or(cfg.TurnBudget, 6000)
	cfg.TurnTokens = cmp.Or(cfg.TurnTokens, 1200)
	cfg.Candidates = cmp.Or(cfg.Candidates, 8)
	cfg.MaxProgress = cmp.Or(cfg.MaxProgress, 20)
	return &Builder{store: store, cfg: cfg}
}

var _ loop.Prompter = (*Builder)(nil)

// Prepare resolves the anchor, cuts the slice and builds the prompt of the
// session's iteration s.CurrentIteration. prev is the iteration before, nil
// for the first.
func (b *Builder) Prepare(ctx context.Context, s pulse.Session, p pulse.Project, prev *pulse.Iteration) (loop.Prepared, error) {
	anchor, hits, err := b.Resolve(ctx, s, prev)
	if err != nil {
		return loop.Prepared{}, fmt.Errorf("resolve the anchor: %w", err)
	}
	slice, turns, err := b.Slice(ctx, s, anchor, hits)
	if err != nil {
		return loop.Prepared{}, fmt.Errorf("cut the slice: %w", err)
	}
	if s.ContextStrategy == pulse.ContextNone {
		slice, turns = pulse.Slice{}, nil
	}
	prompt, tokens := b.build(s, p, prev, turns)
	return loop.Prepared{Prompt: prompt, Anchor: anchor, Slice: slice, ContextTokens: tokens}, nil
}

// Resolve finds the anchor by the strategies chained, explicit, semantic,
// temporal, in this order. A strategy whose turn is unknown or belongs to
// another project is passed over, and the note says so. hits are the turns
// that the semantic search found, best first.
func (b *Builder) Resolve(ctx context.Context, s pulse.Session, prev *pulse.Iteration) (pulse.Anchor, []pulse.TurnHit, error) {
	began := b.cfg.Clock()
	var note string
	done := func(a pulse.Anchor) pulse.Anchor {
		a.Note, a.Milliseconds = note, float64(b.cfg.Clock().Sub(began).Microseconds())/1000
		return a
	}
	hits, err := b.store.SearchTurns(ctx, s.ProjectID, s.Goal, b.cfg.Candidates)
	if err != nil {
		return pulse.Anchor{}, nil, err
	}
	hits = withoutOwnWords(hits, s)
	named := []struct {
		id       pulse.TurnID
		strategy pulse.AnchorStrategy
	}{{"", pulse.AnchorChained}, {s.AnchorTurnID, pulse.AnchorExplicit}}
	if prev != nil {
		named[0].id = prev.AnchorHintNext
	}
	for _, n := range named {
		if n.id == "" {
			continue
		}
		t, err := b.store.Turn(ctx, n.id)
		if err == nil && t.ProjectID == s.ProjectID {
			return done(pulse.Anchor{TurnID: t.ID, Strategy: n.strategy, Salience: 1, Depth: t.Depth, Found: true}), hits, nil
		}
		if err != nil && pulse.CodeOf(err) != pulse.CodeNotFound {
			return pulse.Anchor{}, nil, err
		}
		note += fmt.Sprintf("the %s anchor %s is not a turn of this project; ", n.strategy, n.id)
	}
	if len(hits) > 0 {
		best := hits[0]
		return done(pulse.Anchor{TurnID: best.Turn.ID, Strategy: pulse.AnchorSemantic, Salience: best.Similarity, Depth: best.Turn.Depth, Found: true}), hits, nil
	}
	t, err := b.store.LatestTurn(ctx, s.ProjectID, s.ID)
	switch {
	case errors.Is(err, pulse.ErrNone):
		return done(pulse.Anchor{Strategy: pulse.AnchorTemporal}), hits, nil
	case err != nil:
		return pulse.Anchor{}, nil, err
	}
	return done(pulse.Anchor{TurnID: t.ID, Strategy: pulse.AnchorTemporal, Salience: recency(began.Sub(t.CreatedAt)), Depth: t.Depth, Found: true}), hits, nil
}

// recency falls from 1 for a turn of this moment to 0.5 after a day.
func recency(age time.Duration) float64 {
	return 1 / (1 + max(age, 0).Hours()/24)
}

// ownWords reports whether a turn is what a person said in this session: the
// prompt says that in its own places, as instructions and not as data.
func ownWords(t pulse.Turn, s pulse.Session) bool {
	return t.SessionID == s.ID && t.Role == pulse.TurnUser
}

// withoutOwnWords drops them from what the search found: the goal itself
// matches best.
func withoutOwnWords(hits []pulse.TurnHit, s pulse.Session) []pulse.TurnHit {
	out := hits[:0:0]
	for _, h := range hits {
		if ownWords(h.Turn, s) {
			continue
		}
		out = append(out, h)
	}
	return out
}
