package pulse

import "time"

// Role is what a session is for.
type Role string

const (
	RolePulsing    Role = "pulsing"
	RoleDiscussion Role = "discussion"
	RoleScoping    Role = "scoping"
	RoleResearch   Role = "research"
	RolePlanning   Role = "planning"
	RolePreflight  Role = "preflight"
	RoleReview     Role = "review"
)

// Origin says where a session was asked for (column created_by).
type Origin string

const (
	OriginTelegram Origin = "telegram"
	OriginDiscord  Origin = "discord"
	OriginSMS      Origin = "sms"
	OriginAPI      Origin = "api"
	OriginCLI      Origin = "cli"
	OriginMCP      Origin = "mcp"
	OriginCron     Origin = "cron"
)

// Origins lists every accepted origin.
func Origins() []Origin {
	return []Origin{OriginTelegram, OriginDiscord, OriginSMS, OriginAPI, OriginCLI, OriginMCP, OriginCron}
}

// ContextStrategy says how past turns reach the agent.
type ContextStrategy string

const (
	ContextNone     ContextStrategy = "none"
	ContextPrefetch ContextStrategy = "prefetch"
	ContextMCP      ContextStrategy = "mcp"
	ContextHybrid   ContextStrategy = "hybrid"
)

// Project is a repository that goals may be worked on in.
type Project struct {
	ID         ProjectID
	Name       string // unique, what people type
	Path       string // absolute path of the person's repository
	BaseBranch string // "" = the repository's own HEAD branch
	Agent      string // backend name, "" = the default one
	CreatedAt  time.Time
}

// ProgressEntry is one line of a session's progress log.
type ProgressEntry struct {
	Iteration int       `json:"iteration"`
	Signal    Signal    `json:"signal,omitempty"`
	Summary   string    `json:"summary"`
	Commit    string    `json:"commit,omitempty"`
	Commits   int       `json:"commits,omitempty"`
	Note      string    `json:"note,omitempty"`
	Sandbox   string    `json:"sandbox,omitempty"` // as the daemon reported it
	Said      []Input   `json:"said,omitempty"`    // what a person said, carried by this iteration's prompt
	At        time.Time `json:"at"`
}

// InputKind says what a person's words to a session are.
type InputKind string

const (
	InputAnswer   InputKind = "answer"    // to the question the session is blocked on
	InputGuidance InputKind = "guidance"  // said while it runs, for the next prompt
	InputFollowUp InputKind = "follow_up" // said after it was complete
)

// Input is what a person said to a session and no prompt has carried yet.
type Input struct {
	Kind   InputKind `json:"kind"`
	Text   string    `json:"text"`
	By     string    `json:"by,omitempty"` // a name to show, never an id
	TurnID TurnID    `json:"turn_id,omitempty"`
	At     time.Time `json:"at"`
}

// Session is one goal on its way (table pulse_sessions).
//
// DueAt is wake-up, deadline and lease in one: the Runner takes a session
// whose DueAt has come. A zero DueAt means that nothing is to be done until
// somebody says something. Version grows with every change; it is the guard
// of optimistic writes. EventSeq and the watermarks belong to the store and
// are ignored in a Change.
type Session struct {
	ID               SessionID
	ProjectID        ProjectID
	ProjectName      string
	Goal             string
	Role             Role
	Status           SessionStatus
	StatusReason     string // why it is blocked, failed, aborted; "" otherwise
	MaxIterations    int
	CurrentIteration int
	Run              int // 1, and one more for every follow-up
	LastSignal       Signal
	ProgressLog      []ProgressEntry
	Inputs           []Input // said, but not yet in a prompt
	AnchorTurnID     TurnID
	LastTurnID       TurnID
	ContextStrategy  ContextStrategy
	Agent            string
	BranchName       string
	BaseBranch       string
	HeadCommit       string
	Daemon           DaemonID // where its worktree is, "" before the first iteration
	CreatedBy        Origin
	CreatedByID      OperatorID
	PauseRequested   bool

	ChatID          string // Telegram chat
	ChatThreadID    string // Telegram forum topic
	PhoneNumber     string
	DiscordThreadID string
	ConsoleID       string // terminal conversation

	TotalCommits    int64
	TotalTokens     int64
	TotalCostMicros int64 // millionths of a US dollar

	DueAt     time.Time
	StepToken string
	Version   int64
	EventSeq  int64
	CreatedAt time.Time
	UpdatedAt time.Time
	StartedAt time.Time
	EndedAt   time.Time
}

// Usage is what an agent run cost, as its CLI reported it.
type Usage struct {
	InputTokens      int64
	OutputTokens     int64
	CacheReadTokens  int64
	CacheWriteTokens int64
	CostMicros       int64 // millionths of a US dollar, 0 when unknown
}

// Total is every token that went in or out, caches included.
func (u Usage) Total() int64 {
	return u.InputTokens + u.OutputTokens + u.CacheReadTokens + u.CacheWriteTokens
}

// Iteration is one dispatch of a session (table pulse_iterations). A
// redispatch after a timeout is a row of its own with the same Number and
// the next Attempt.
type Iteration struct {
	ID             IterationID
	SessionID      SessionID
	Number         int // from 1
	Attempt        int // from 1
	Run            int
	TaskID         TaskID
	TaskContent    string // the exact prompt
	Status         IterationStatus
	Signal         Signal
	SignalClaimed  Signal
	SignalReason   string
	SignalInferred bool
	OutputSummary  string
	OutputFull     string
	CommitHash     string
	Commits        int
	FilesChanged   []string
	Anchor         Anchor
	AnchorHintNext TurnID
	AnchorHintWhy  string
	ContextTokens  int
	SliceID        SliceID
	TurnID         TurnID // the assistant turn it produced
	Usage          Usage
	Error          string
	CreatedAt      time.Time
	StartedAt      time.Time
	EndedAt        time.Time
}

// MediaContext travels with a task of source "pulse"; its JSON names are the
// document's.
type MediaContext struct {
	PulseSessionID  SessionID `json:"pulseSessionId"`
	IterationNumber int       `json:"iterationNumber"`
	ProjectID       ProjectID `json:"projectId"`
	BranchName      string    `json:"branchName"`
	SliceID         SliceID   `json:"sliceId"`
}

// TaskKind says what a task does to a tree or a repository.
type TaskKind string

const (
	TaskIterate TaskKind = "iterate"
)

// TaskSpec is what a daemon needs to know beside the prompt.
type TaskSpec struct {
	Role         Role          `json:"role"`
	Agent        string        `json:"agent"`
	RepoPath     string        `json:"repo_path"`
	ProjectName  string        `json:"project_name"`
	Branch       string        `json:"branch"`
	BaseBranch   string        `json:"base_branch,omitempty"`
	Since        string        `json:"since,omitempty"` // the last commit on record for the session; work counts from there
	ParentTurn   TurnID        `json:"parent_turn,omitempty"`
	Subject      string        `json:"subject"` // Conventional Commit subject of the checkpoint
	Goal         string        `json:"goal"`    // its first 200 characters
	SilenceLimit time.Duration `json:"silence_limit"`

	ToolSilenceLimit time.Duration `json:"tool_silence_limit"`
}

// Task is a row of inbox_tasks: work for a daemon. A claim is live while
// LeaseUntil lies ahead on the database's clock and ClaimToken is the one in
// the row.
type Task struct {
	ID           TaskID
	Kind         TaskKind
	Route        string // "project:<id>" or "daemon:<id>"
	Priority     int
	Status       TaskStatus
	Source       string // "pulse"
	SessionID    SessionID
	IterationID  IterationID
	Content      string
	MediaContext MediaContext
	Spec         TaskSpec
	Attempt      int // claims so far
	MaxAttempts  int
	ClaimToken   ClaimToken
	ClaimedBy    DaemonID
	LeaseUntil   time.Time
	LastSign     time.Time // last sign of life of the agent
	Phase        Phase     // at that time
	ReadAt       time.Time // by the clock of LastSign and LeaseUntil, when this was read; zero: not known
	Result       *TaskResult
	CreatedAt    time.Time
	StartedAt    time.Time
	EndedAt      time.Time
}

// ProjectRoute is the route of work that any daemon with the project may do.
func ProjectRoute(id ProjectID) string { return "project:" + string(id) }

// DaemonRoute is the route of work that is bound to one daemon's worktree.
func DaemonRoute(id DaemonID) string { return "daemon:" + string(id) }

// TaskResult is the facts a daemon reports; only loop decides what they mean.
type TaskResult struct {
	FinalText    string   `json:"final_text"`
	TurnID       TurnID   `json:"turn_id,omitempty"`
	Commit       string   `json:"commit,omitempty"` // head after the checkpoint
	Commits      int      `json:"commits"`          // new since the last checkpoint
	FilesChanged []string `json:"files_changed,omitempty"`
	Published    bool     `json:"published"`
	Notes        []string `json:"notes,omitempty"`
	Usage        Usage    `json:"usage"`
	ExitCode     int      `json:"exit_code"`
	Error        string   `json:"error,omitempty"` // why the run failed; "" for a run that ended by itself
	Hint         string   `json:"hint,omitempty"`  // what a person can do about Error
	Conversation string   `json:"conversation,omitempty"`
	Model        string   `json:"model,omitempty"`
	Daemon       DaemonID `json:"daemon,omitempty"`
	Sandbox      string   `json:"sandbox,omitempty"` // the walls the agent ran behind; "none" without any
}

// Claim is a task in a daemon's hands.
type Claim struct {
	Task  Task
	Token ClaimToken
}

// Fence proves to the store that a write belongs to the live claim.
type Fence struct {
	TaskID TaskID
	Token  ClaimToken
}

// GateKind says what a person decides.
type GateKind string

const (
	GateQuestion GateKind = "question" // the agent is blocked and asks
	GateLimit    GateKind = "limit"    // iterations are used up: more or stop
	GateTimeout  GateKind = "timeout"  // no sign of life twice, or no end: retry or stop
)

// GateOption is one of the choices of a gate.
type GateOption struct {
	Key   string `json:"key"`
	Label string `json:"label"`
}

// Gate is a point at which a person decides. It is resolved exactly once.
type Gate struct {
	ID          GateID
	SessionID   SessionID
	IterationID IterationID
	Kind        GateKind
	Prompt      string
	Options     []GateOption // empty: free text is the answer
	Status      GateStatus
	Choice      string
	Text        string
	DecidedBy   OperatorID
	DecidedName string
	CreatedAt   time.Time
	DecidedAt   time.Time
}
