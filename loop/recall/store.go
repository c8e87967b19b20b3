package recall

import (
	"context"

	"pulseloop/pulse"
)

// Store reads past turns. All reads stay within one project.
type Store interface {
	// Turn reads a turn with its text; pulse.CodeNotFound.
	Turn(ctx context.Context, id pulse.TurnID) (pulse.Turn, error)
	// Ancestors reads up to limit turns from the parent of id towards the
	// root, nearest first, with their texts.
	Ancestors(ctx context.Context, id pulse.TurnID, limit int) ([]pulse.Turn, error)
	// LatestTurn reads the project's most recent completed turn, passing over
	// what a person said in the session given; pulse.ErrNone.
	LatestTurn(ctx context.Context, project pulse.ProjectID, asking pulse.SessionID) (pulse.Turn, error)
	// SearchTurns finds completed turns by full text: any of the words,
	// best first, similarity from 0 to 1 (1 for the best possible match of
	// this query, falling with rank score).
	SearchTurns(ctx context.Context, project pulse.ProjectID, query string, limit int) ([]pulse.TurnHit, error)
}
