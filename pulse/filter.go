package pulse

// SessionFilter selects sessions; zero fields do not filter. Newest first.
type SessionFilter struct {
	Statuses  []SessionStatus
	ProjectID ProjectID
	Address   Address // sessions whose notifications go there
	Limit     int     // 0 = 50
}

// Unread is a session with events that a durable consumer has not handled:
// those after Seen.
type Unread struct {
	Session Session
	Seen    int64
}
