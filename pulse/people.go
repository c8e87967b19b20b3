package pulse

import "time"

// OperatorRole is what a person may do.
type OperatorRole string

const (
	RoleOwner    OperatorRole = "owner"
	RoleOperator OperatorRole = "operator"
	RoleViewer   OperatorRole = "viewer"
)

// May reports whether a person of this role may change anything.
func (r OperatorRole) May() bool { return r == RoleOwner || r == RoleOperator }

// Operator is a person who may speak, known by the id that the platform
// gives the sender, never by a name the sender chose.
type Operator struct {
	ID        OperatorID
	Platform  Platform
	UserID    string // the platform's id of the sender
	Name      string // to show
	Role      OperatorRole
	CreatedAt time.Time
}

// PairingCode lets whoever sends it become an operator, once.
type PairingCode struct {
	Hash      string // SHA-256 of the code, hex
	Role      OperatorRole
	CreatedAt time.Time
	ExpiresAt time.Time
}

// Channel binds a platform chat (and topic) to a project and, for a topic or
// thread of its own, to a session.
type Channel struct {
	Address   Address
	ProjectID ProjectID
	SessionID SessionID // last session started or bound here
}

// Inbound is a raw update of a platform, committed before the platform is
// told that it was received. Source and UpdateID together are unique.
type Inbound struct {
	ID         InboundID
	Platform   Platform
	Source     string // which bot or listener received it
	UpdateID   string // the platform's own id of the update
	Order      int64  // updates of a source are handled in this order
	Payload    []byte
	ReceivedAt time.Time
}

// AuditEntry is one line of the append-only record of who did what.
type AuditEntry struct {
	At       time.Time
	Operator OperatorID
	Name     string
	Action   string
	Subject  string
	Detail   string
}
