package wire

import (
	"time"

	"pulseloop/pulse"
)

// Session is a row of pulse_sessions.
type Session struct {
	ID               pulse.SessionID       `json:"id"`
	ProjectID        pulse.ProjectID       `json:"project_id"`
	ProjectName      string                `json:"project_name"`
	Goal             string                `json:"goal"`
	Role             pulse.Role            `json:"role"`
	Status           pulse.SessionStatus   `json:"status"`
	StatusReason     string                `json:"status_reason"`
	MaxIterations    int                   `json:"max_iterations"`
	CurrentIteration int                   `json:"current_iteration"`
	Run              int                   `json:"run"`
	LastSignal       pulse.Signal          `json:"last_signal"`
	ProgressLog      []pulse.ProgressEntry `json:"progress_log"`
	AnchorTurnID     pulse.TurnID          `json:"anchor_turn_id"`
	ContextStrategy  pulse.ContextStrategy `json:"context_strategy"`
	Agent            string                `json:"agent"`
	BranchName       string                `json:"branch_name"`
	BaseBranch       string                `json:"base_branch"`
	HeadCommit       string                `json:"head_commit"`
	CreatedBy        pulse.Origin          `json:"created_by"`
	PauseRequested   bool                  `json:"pause_requested"`
	ChatID           string                `json:"chat_id"`
	ChatThreadID     string                `json:"chat_thread_id"`
	PhoneNumber      string                `json:"phone_number"`
	DiscordThreadID  string                `json:"discord_thread_id"`
	TotalCommits     int64                 `json:"total_commits"`
	TotalTokensUsed  int64                 `json:"total_tokens_used"`
	TotalCostMicros  int64                 `json:"total_cost_micros"` // millionths of a US dollar
	EventSeq         int64                 `json:"event_seq"`
	CreatedAt        *time.Time            `json:"created_at"`
	UpdatedAt        *time.Time            `json:"updated_at"`
	StartedAt        *time.Time            `json:"started_at"`
	EndedAt          *time.Time            `json:"ended_at"`
}

// FromSession converts a session. What it has no field for (lease, step
// token, version) is the store's own business and never leaves the process.
func FromSession(s pulse.Session) Session {
	return Session{
		ID: s.ID, ProjectID: s.ProjectID, ProjectName: s.ProjectName, Goal: s.Goal,
		Role: s.Role, Status: s.Status, StatusReason: s.StatusReason,
		MaxIterations: s.MaxIterations, CurrentIteration: s.CurrentIteration, Run: s.Run,
		LastSignal: s.LastSignal, ProgressLog: list(s.ProgressLog),
		AnchorTurnID: s.AnchorTurnID, ContextStrategy: s.ContextStrategy, Agent: s.Agent,
		BranchName: s.BranchName, BaseBranch: s.BaseBranch, HeadCommit: s.HeadCommit,
		CreatedBy: s.CreatedBy, PauseRequested: s.PauseRequested,
		ChatID: s.ChatID, ChatThreadID: s.ChatThreadID, PhoneNumber: s.PhoneNumber, DiscordThreadID: s.DiscordThreadID,
		TotalCommits: s.TotalCommits, TotalTokensUsed: s.TotalTokens, TotalCostMicros: s.TotalCostMicros,
		EventSeq: s.EventSeq, CreatedAt: at(s.CreatedAt), UpdatedAt: at(s.UpdatedAt),
		StartedAt: at(s.StartedAt), EndedAt: at(s.EndedAt),
	}
}

// FromSessions converts a list.
func FromSessions(in []pulse.Session) []Session {
	out := make([]Session, 0, len(in))
	for _, s := range in {
		out = append(out, FromSession(s))
	}
	return out
}

// Iteration is a row of pulse_iterations.
type Iteration struct {
	ID                 pulse.IterationID     `json:"id"`
	SessionID          pulse.SessionID       `json:"session_id"`
	IterationNumber    int                   `json:"iteration_number"`
	Attempt            int                   `json:"attempt"`
	Run                int                   `json:"run"`
	InboxTaskID        pulse.TaskID          `json:"inbox_task_id"`
	TaskContent        string                `json:"task_content"`
	Status             pulse.IterationStatus `json:"status"`
	Signal             pulse.Signal          `json:"signal"`
	SignalClaimed      pulse.Signal          `json:"signal_claimed"`
	SignalReason       string                `json:"signal_reason"`
	SignalInferred     bool                  `json:"signal_inferred"`
	OutputSummary      string                `json:"output_summary"`
	OutputFull         string                `json:"output_full"`
	CommitHash         string                `json:"commit_hash"`
	Commits            int                   `json:"commits"`
	FilesChanged       []string              `json:"files_changed"`
	AnchorTurnID       pulse.TurnID          `json:"anchor_turn_id"`
	AnchorStrategy     pulse.AnchorStrategy  `json:"anchor_strategy"`
	AnchorResolutionMS float64               `json:"anchor_resolution_ms"`
	Salience           float64               `json:"salience"`
	Depth              int                   `json:"depth"`
	AnchorHintNext     pulse.TurnID          `json:"anchor_hint_next"`
	ContextTokens      int                   `json:"context_tokens"`
	SliceID            pulse.SliceID         `json:"slice_id"`
	TurnID             pulse.TurnID          `json:"turn_id"`
	Usage              Usage                 `json:"usage"`
	Error              string                `json:"error"`
	CreatedAt          *time.Time            `json:"created_at"`
	StartedAt          *time.Time            `json:"started_at"`
	EndedAt            *time.Time            `json:"ended_at"`
}

// Usage is what an iteration cost, as the agent's CLI reported it.
type Usage struct {
	InputTokens      int64 `json:"input_tokens"`
	OutputTokens     int64 `json:"output_tokens"`
	CacheReadTokens  int64 `json:"cache_read_tokens"`
	CacheWriteTokens int64 `json:"cache_write_tokens"`
	CostMicros       int64 `json:"cost_micros"`
}

// FromIteration converts an iteration.
func FromIteration(it pulse.Iteration) Iteration {
	return Iteration{
		ID: it.ID, SessionID: it.SessionID, IterationNumber: it.Number, Attempt: it.Attempt, Run: it.Run,
		InboxTaskID: it.TaskID, TaskContent: it.TaskContent, Status: it.Status,
		Signal: it.Signal, SignalClaimed: it.SignalClaimed, SignalReason: it.SignalReason, SignalInferred: it.SignalInferred,
		OutputSummary: it.OutputSummary, OutputFull: it.OutputFull,
		CommitHash: it.CommitHash, Commits: it.Commits, FilesChanged: list(it.FilesChanged),
		AnchorTurnID: it.Anchor.TurnID, AnchorStrategy: it.Anchor.Strategy, AnchorResolutionMS: it.Anchor.Milliseconds,
		Salience: it.Anchor.Salience, Depth: it.Anchor.Depth, AnchorHintNext: it.AnchorHintNext,
		ContextTokens: it.ContextTokens, SliceID: it.SliceID, TurnID: it.TurnID,
		Usage: Usage(it.Usage), Error: it.Error,
		CreatedAt: at(it.CreatedAt), StartedAt: at(it.StartedAt), EndedAt: at(it.EndedAt),
	}
}

// FromIterations converts a list.
func FromIterations(in []pulse.Iteration) []Iteration {
	out := make([]Iteration, 0, len(in))
	for _, it := range in {
		out = append(out, FromIteration(it))
	}
	return out
}

// Gate is a row of gates: the point at which a person decides.
type Gate struct {
	ID          pulse.GateID       `json:"id"`
	SessionID   pulse.SessionID    `json:"session_id"`
	IterationID pulse.IterationID  `json:"iteration_id"`
	Kind        pulse.GateKind     `json:"kind"`
	Prompt      string             `json:"prompt"`
	Options     []pulse.GateOption `json:"options"`
	Status      pulse.GateStatus   `json:"status"`
	CreatedAt   *time.Time         `json:"created_at"`
}

// FromGate converts an open gate.
func FromGate(g pulse.Gate) *Gate {
	return &Gate{
		ID: g.ID, SessionID: g.SessionID, IterationID: g.IterationID, Kind: g.Kind, Prompt: g.Prompt,
		Options: list(g.Options), Status: g.Status, CreatedAt: at(g.CreatedAt),
	}
}

// Project is a row of projects.
type Project struct {
	ID         pulse.ProjectID `json:"id"`
	Name       string          `json:"name"`
	Path       string          `json:"path"`
	BaseBranch string          `json:"base_branch"`
	Agent      string          `json:"agent"`
	CreatedAt  *time.Time      `json:"created_at"`
}

// FromProject converts a project.
func FromProject(p pulse.Project) Project {
	return Project{ID: p.ID, Name: p.Name, Path: p.Path, BaseBranch: p.BaseBranch, Agent: p.Agent, CreatedAt: at(p.CreatedAt)}
}
