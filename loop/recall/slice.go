package recall

import (
	"context"
	"crypto/sha256"
	"encoding/hex"

	"pulseloop/pulse"
)

// ancestorLimit bounds the walk from the anchor towards the root.
const ancestorLimit = 12

// Slice selects turns within the token budget: the anchor, its ancestors
// nearest first, then what the search found, best first. The order and the
// id depend on the turns alone.
func (b *Builder) Slice(ctx context.Context, s pulse.Session, a pulse.Anchor, hits []pulse.TurnHit) (pulse.Slice, []pulse.Turn, error) {
	if !a.Found {
		return pulse.Slice{}, nil, nil
	}
	anchor, err := b.store.Turn(ctx, a.TurnID)
	if err != nil {
		return pulse.Slice{}, nil, err
	}
	near, err := b.store.Ancestors(ctx, a.TurnID, ancestorLimit)
	if err != nil {
		return pulse.Slice{}, nil, err
	}
	candidates := append([]pulse.Turn{anchor}, near...)
	for _, h := range hits {
		candidates = append(candidates, h.Turn)
	}
	slice, turns := b.fit(candidates, s)
	return slice, turns, nil
}

// fit takes turns in order as long as they fit the budget.
func (b *Builder) fit(candidates []pulse.Turn, s pulse.Session) (pulse.Slice, []pulse.Turn) {
	var slice pulse.Slice
	var turns []pulse.Turn
	seen := map[pulse.TurnID]bool{}
	hash := sha256.New()
	for _, t := range candidates {
		if seen[t.ID] || t.ProjectID != s.ProjectID || t.Text == "" || ownWords(t, s) {
			continue
		}
		seen[t.ID] = true
		cost := min(estimate(t.Text), b.cfg.TurnTokens)
		if slice.Tokens+cost > b.cfg.TurnBudget {
			continue
		}
		slice.Tokens += cost
		slice.TurnIDs = append(slice.TurnIDs, t.ID)
		turns = append(turns, t)
		hash.Write([]byte(t.ID))
		hash.Write([]byte{'\n'})
	}
	slice.NodeCount = len(turns)
	if len(turns) > 0 {
		slice.ID = pulse.SliceID(hex.EncodeToString(hash.Sum(nil)[:16]))
	}
	return slice, turns
}

// estimate gives tokens of a text by its length: four bytes a token is what
// English and code come to with the usual tokenizers.
func estimate(text string) int { return (len(text) + 3) / 4 }
