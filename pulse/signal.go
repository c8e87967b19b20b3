package pulse

// Signal is how an iteration ends.
type Signal string

const (
	SignalContinue Signal = "CONTINUE"
	SignalComplete Signal = "COMPLETE"
	SignalBlocked  Signal = "BLOCKED"
)

// Verdict is what was read out of an agent's final text.
type Verdict struct {
	Signal   Signal // what counts
	Claimed  Signal // what the agent said explicitly, "" if it said nothing
	Reason   string // why it is blocked, or what went wrong with the signal
	Inferred bool   // no explicit signal: read from the wording
}

// AnchorHint is the agent's suggestion of where the next iteration's
// context should start.
type AnchorHint struct {
	TurnID TurnID
	Reason string
}

// AnchorStrategy names how an anchor was found.
type AnchorStrategy string

const (
	AnchorChained  AnchorStrategy = "chained"
	AnchorExplicit AnchorStrategy = "explicit"
	AnchorSemantic AnchorStrategy = "semantic"
	AnchorTemporal AnchorStrategy = "temporal"
)

// Anchor is a resolved starting point in the turn tree. Found is false when
// the project has no turn at all.
type Anchor struct {
	TurnID       TurnID
	Strategy     AnchorStrategy
	Milliseconds float64 // how long the resolution took
	Salience     float64 // 0 to 1
	Depth        int     // distance from the root of its turn tree, root = 0
	Note         string  // why an earlier strategy was passed over, if one was
	Found        bool
}

// Slice is an ordered selection of turns around an anchor. The same turns
// give the same ID.
type Slice struct {
	ID        SliceID
	TurnIDs   []TurnID
	NodeCount int
	Tokens    int // estimate of what the turns cost in a prompt
}

// TurnHit is a turn found by a query, with its similarity from 0 to 1.
type TurnHit struct {
	Turn       Turn
	Similarity float64
}
