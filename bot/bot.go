package bot

import (
	"context"
	"time"

	"pulseloop/pulse"
)

// EventKind says what a person did.
type EventKind string

const (
	KindMessage EventKind = "message" // said something
	KindEdit    EventKind = "edit"    // changed something said before
	KindPress   EventKind = "press"   // pressed a button
	KindMoved   EventKind = "moved"   // the chat got a new address (To)
	KindIgnored EventKind = "ignored" // nothing a person said to us: Note says what it was
)

// Event is an update in neutral form: what one person did in one place.
// Authorisation is by Sender, never by the chat.
type Event struct {
	Kind       EventKind
	Platform   pulse.Platform
	Address    pulse.Address
	Private    bool   // a conversation with this person alone
	Sender     Sender // zero where the platform names none: such events start nothing
	MessageID  string // of the message said, edited, or carrying the button
	ReplyTo    string // external id of the message this replies to
	Text       string // sanitised; commands keep their leading slash, without @bot
	OtherBot   bool   // a command addressed to another bot
	Forwarded  bool   // the words are another's: they are no goal, answer or command of the sender
	Back       bool   // the bot was let in (again): the place takes messages
	Data       string // of the button
	CallbackID string // to acknowledge the press
	To         pulse.Address
	Note       string
	At         time.Time
}

// Sender is who did it, as the platform vouches for it.
type Sender struct {
	UserID string
	Name   string
	Bot    bool
}

// Decoder turns the raw payload of an update into an Event. It never fails
// for content: what cannot be understood is KindIgnored with a note.
type Decoder interface {
	Decode(in pulse.Inbound) Event
}

// Acknowledger is an optional ability of an adapter: tell the platform at
// once that a press was seen (best effort, never required for correctness).
type Acknowledger interface {
	Acknowledge(ctx context.Context, e Event, text string)
}

// TopicMaker is an optional ability of an adapter: open a topic or thread of
// its own for a session in the place addressed. ok is false where the place
// has no such thing.
type TopicMaker interface {
	OpenTopic(ctx context.Context, in pulse.Address, title string) (topic pulse.Address, ok bool, err error)
}

// Intake is what an adapter's receiver writes to, before it tells the
// platform that anything was received.
type Intake interface {
	// Receive commits updates and the new offset of their source in one
	// transaction; updates already there (source, update id) are skipped.
	// It answers how many were new. An empty offset leaves it as it is.
	Receive(ctx context.Context, source string, updates []pulse.Inbound, offset string) (int, error)
	// Offset reads the source's offset, "" at first.
	Offset(ctx context.Context, source string) (string, error)
}

// Inbox is what the router reads from. Handling an update ends with an Apply
// whose guard names it. What keeps the updates of a chat in order is in the
// inbox, so that it holds across a restart too.
type Inbox interface {
	// PendingInbound gives updates not handled yet, by source and order; at
	// most limit. Left out are those whose delay is not over, and those
	// behind one that is not handled.
	PendingInbound(ctx context.Context, limit int) ([]pulse.Inbound, error)
	// DeferInbound delays the handling of an update, which holds nothing
	// back: what was behind it goes on.
	DeferInbound(ctx context.Context, id pulse.InboundID, reason string, until time.Time) error
	// HoldInbound notes a failed handling and delays the next. Until it is
	// over, the update holds back what was said later in its chat.
	HoldInbound(ctx context.Context, id pulse.InboundID, reason string, until time.Time) error
	// HeldInbound gives the updates that hold and those behind them, by
	// source and order.
	HeldInbound(ctx context.Context) ([]pulse.Inbound, error)
	// QueueInbound puts an update behind another that cannot be handled yet:
	// it is not pending before that is handled, or deferred.
	QueueInbound(ctx context.Context, id, behind pulse.InboundID) error
}

// People is what the router knows of persons and places.
type People interface {
	Operator(ctx context.Context, p pulse.Platform, userID string) (pulse.Operator, error) // pulse.ErrNone
	CountOperators(ctx context.Context, p pulse.Platform) (int, error)
	// FailedPairing counts a wrong code and answers how many there were from
	// this sender within the last hour.
	FailedPairing(ctx context.Context, p pulse.Platform, userID string) (int, error)
	Channel(ctx context.Context, a pulse.Address) (pulse.Channel, error)                                             // pulse.ErrNone
	SessionByMessage(ctx context.Context, a pulse.Address, externalID string) (pulse.SessionID, pulse.GateID, error) // pulse.ErrNone
	// ReleaseChat lets messages for a chat that refused them be tried again,
	// and answers whether there was a need to.
	ReleaseChat(ctx context.Context, a pulse.Address) (bool, error)
	// HeldChats says which chats refuse messages until somebody writes
	// there, and in which words.
	HeldChats(ctx context.Context) (map[pulse.Address]string, error)
}

// Reader is what commands show.
type Reader interface {
	Projects(ctx context.Context) ([]pulse.Project, error)
	Sessions(ctx context.Context, f pulse.SessionFilter) ([]pulse.Session, error)
	FindSession(ctx context.Context, idOrSuffix string) (pulse.Session, error) // CodeNotFound, CodeInvalid when ambiguous
	Iterations(ctx context.Context, id pulse.SessionID) ([]pulse.Iteration, error)
	Gate(ctx context.Context, id pulse.GateID) (pulse.Gate, error)
	OpenGate(ctx context.Context, id pulse.SessionID) (pulse.Gate, error) // pulse.ErrNone
}
