package pulse

// Guard says under which condition a change may be written. The zero Guard
// always holds. If it does not, nothing is written and the store answers
// ErrStale (or ErrDone for the inbound update).
type Guard struct {
	SessionID SessionID // the session whose Version must match
	Version   int64
	StepToken string    // besides, if not "": the Runner's hold on the session
	Inbound   InboundID // besides, if not "": must not have been handled; is marked handled
}

// Change is all that one decision writes, in one transaction.
//
// Sessions are written whole, except for Version (the store adds one),
// EventSeq and the watermarks. Records with a status are written whole, by
// key; the store refuses a status change that the table of states does not
// allow. Events get their Seq from their session.
type Change struct {
	Project    *Project // inserted or updated
	NewSession *Session
	Session    *Session // updated, guarded by Guard
	Iterations []Iteration
	Tasks      []Task // new ones
	Cancel     []TaskID
	Gates      []Gate
	Turns      []TurnDetail // what people said: complete turns
	Slice      *Slice
	Events     []Event
	Notices    []Notice
	Channel    *Channel
	Operator   *Operator // inserted or updated
	NewCode    *PairingCode
	UsedCode   string // hash of a pairing code that must exist, be alive and unused; is used up (else ErrStale)
	Audit      []AuditEntry
}
