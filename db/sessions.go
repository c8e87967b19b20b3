package db

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/uptrace/bun"

	"pulseloop/pulse"
)

type sessionRow struct {
	bun.BaseModel `bun:"table:pulse_sessions,alias:s"`

	ID               uid `bun:",pk"`
	ProjectID        uid
	ProjectName      text
	Goal             text
	Role             text
	Status           text
	StatusReason     text
	MaxIterations    int
	CurrentIteration int
	Run              int
	LastSignal       opt
	ProgressLog      doc[[]pulse.ProgressEntry]
	Inputs           doc[[]pulse.Input]
	AnchorTurnID     opt
	LastTurnID       opt
	ContextStrategy  text
	Agent            text
	BranchName       text
	BaseBranch       text
	HeadCommit       text
	Daemon           text
	CreatedBy        text
	CreatedByID      opt
	PauseRequested   bool
	ChatID           text
	ChatThreadID     text
	PhoneNumber      text
	DiscordThreadID  text
	ConsoleID        text
	TotalCommits     int64
	TotalTokensUsed  int64
	TotalCostMicros  int64
	DueAt            stamp
	StepToken        opt
	Version          int64
	EventSeq         int64
	NotifySeq        int64
	CreatedAt        stamp
	UpdatedAt        stamp
	StartedAt        stamp
	EndedAt          stamp
}

func (w *work) sessionRow(s pulse.Session) *sessionRow {
	return &sessionRow{
		ID: uid(s.ID), ProjectID: uid(s.ProjectID), ProjectName: text(s.ProjectName), Goal: text(s.Goal),
		Role: text(s.Role), Status: text(s.Status), StatusReason: text(s.StatusReason),
		MaxIterations: s.MaxIterations, CurrentIteration: s.CurrentIteration, Run: s.Run,
		LastSignal: opt(s.LastSignal), ProgressLog: doc[[]pulse.ProgressEntry]{orEmpty(s.ProgressLog)}, Inputs: doc[[]pulse.Input]{orEmpty(s.Inputs)},
		AnchorTurnID: opt(s.AnchorTurnID), LastTurnID: opt(s.LastTurnID), ContextStrategy: text(s.ContextStrategy),
		Agent: text(s.Agent), BranchName: text(s.BranchName), BaseBranch: text(s.BaseBranch), HeadCommit: text(s.HeadCommit),
		Daemon: text(s.Daemon), CreatedBy: text(s.CreatedBy), CreatedByID: opt(s.CreatedByID), PauseRequested: s.PauseRequested,
		ChatID: text(s.ChatID), ChatThreadID: text(s.ChatThreadID), PhoneNumber: text(s.PhoneNumber),
		DiscordThreadID: text(s.DiscordThreadID), ConsoleID: text(s.ConsoleID),
		TotalCommits: s.TotalCommits, TotalTokensUsed: s.TotalTokens, TotalCostMicros: s.TotalCostMicros,
		DueAt: at(s.DueAt), StepToken: opt(s.StepToken), Version: 1,
		CreatedAt: w.orNow(s.CreatedAt), UpdatedAt: w.orNow(s.UpdatedAt), StartedAt: at(s.StartedAt), EndedAt: at(s.EndedAt),
	}
}

func (r sessionRow) value() pulse.Session {
	return pulse.Session{
		ID: pulse.SessionID(r.ID), ProjectID: pulse.ProjectID(r.ProjectID), ProjectName: string(r.ProjectName), Goal: string(r.Goal),
		Role: pulse.Role(r.Role), Status: pulse.SessionStatus(r.Status), StatusReason: string(r.StatusReason),
		MaxIterations: r.MaxIterations, CurrentIteration: r.CurrentIteration, Run: r.Run,
		LastSignal: pulse.Signal(r.LastSignal), ProgressLog: r.ProgressLog.V, Inputs: r.Inputs.V,
		AnchorTurnID: pulse.TurnID(r.AnchorTurnID), LastTurnID: pulse.TurnID(r.LastTurnID), ContextStrategy: pulse.ContextStrategy(r.ContextStrategy),
		Agent: string(r.Agent), BranchName: string(r.BranchName), BaseBranch: string(r.BaseBranch), HeadCommit: string(r.HeadCommit),
		Daemon: pulse.DaemonID(r.Daemon), CreatedBy: pulse.Origin(r.CreatedBy), CreatedByID: pulse.OperatorID(r.CreatedByID), PauseRequested: r.PauseRequested,
		ChatID: string(r.ChatID), ChatThreadID: string(r.ChatThreadID), PhoneNumber: string(r.PhoneNumber),
		DiscordThreadID: string(r.DiscordThreadID), ConsoleID: string(r.ConsoleID),
		TotalCommits: r.TotalCommits, TotalTokens: r.TotalTokensUsed, TotalCostMicros: r.TotalCostMicros,
		DueAt: r.DueAt.Time, StepToken: string(r.StepToken), Version: r.Version, EventSeq: r.EventSeq,
		CreatedAt: r.CreatedAt.Time, UpdatedAt: r.UpdatedAt.Time, StartedAt: r.StartedAt.Time, EndedAt: r.EndedAt.Time,
	}
}

// orEmpty keeps "no entries" an empty JSON array rather than null.
func orEmpty[T any](s []T) []T {
	if s == nil {
		return []T{}
	}
	return s
}

func (w *work) orNow(t time.Time) stamp {
	if t.IsZero() {
		return at(w.at)
	}
	return at(t)
}

func (w *work) insertSession(ctx context.Context, s pulse.Session) error {
	_, err := w.db.NewInsert().Model(w.sessionRow(s)).Exec(ctx)
	return err
}

// updateSession writes the session whole under the guard. It is the first
// row that a change locks.
func (w *work) updateSession(ctx context.Context, g pulse.Guard, s pulse.Session) error {
	q := w.db.NewUpdate().Model(w.sessionRow(s)).
		ExcludeColumn("id", "event_seq", "notify_seq", "created_at").
		Value("version", "s.version + 1").
		Where("s.id = ?", uid(s.ID)).
		Where("s.status IN (?)", bun.List(append(pulse.SessionTransitions.From(s.Status), s.Status)))
	if g.SessionID != "" {
		q = q.Where("s.version = ?", g.Version)
	}
	if g.StepToken != "" {
		q = q.Where("s.step_token = ?", text(g.StepToken))
	}
	res, err := q.Exec(ctx)
	if err != nil {
		return err
	}
	return w.changedSession(ctx, s.ID, res)
}

// guardSession checks a guard whose change does not write the session, and
// counts as a change of it, so that of two decisions only one is written.
func (w *work) guardSession(ctx context.Context, g pulse.Guard) error {
	q := w.db.NewUpdate().Model((*sessionRow)(nil)).Set("version = version + 1").
		Where("id = ?", uid(g.SessionID)).Where("version = ?", g.Version)
	if g.StepToken != "" {
		q = q.Where("step_token = ?", text(g.StepToken))
	}
	res, err := q.Exec(ctx)
	if err != nil {
		return err
	}
	return w.changedSession(ctx, g.SessionID, res)
}

// changedSession tells a session that moved on from one that never was.
func (w *work) changedSession(ctx context.Context, id pulse.SessionID, res affected) error {
	n, err := res.RowsAffected()
	if err != nil || n > 0 {
		return err
	}
	var there int
	if err := w.db.NewRaw("SELECT count(*) FROM pulse_sessions WHERE id = ?", uid(id)).Scan(ctx, &there); err != nil {
		return err
	}
	if there == 0 {
		return noSession(string(id))
	}
	return pulse.ErrStale
}

type affected interface{ RowsAffected() (int64, error) }

func noSession(id string) error {
	return pulse.NotFound("there is no session "+clip(id, 60), "list them with: pulse list")
}

// Session reads one session; pulse.CodeNotFound.
func (s *Store) Session(ctx context.Context, id pulse.SessionID) (pulse.Session, error) {
	if !pulse.ValidUUID(string(id)) {
		return pulse.Session{}, noSession(string(id))
	}
	var row sessionRow
	err := s.view(ctx, "read session", func(ctx context.Context, db bun.IDB) error {
		return none(db.NewSelect().Model(&row).Where("id = ?", uid(id)).Scan(ctx), noSession(string(id)))
	})
	return row.value(), err
}

// Take gives the due session that waits longest a hold for lease and a step
// token; pulse.ErrNone if none is due, with the time of the next one.
func (s *Store) Take(ctx context.Context, token string, lease time.Duration) (pulse.Session, time.Time, error) {
	var row sessionRow
	if !s.anyDue(ctx) {
		return s.noneDue(ctx) // looking first spares an idle Runner the write lock
	}
	err := s.write(ctx, "take session", func(ctx context.Context, w *work) error {
		row = sessionRow{}
		lock := ""
		if w.pg {
			lock = " FOR UPDATE SKIP LOCKED"
		}
		err := w.db.NewRaw("UPDATE pulse_sessions SET due_at = "+w.now(lease)+", step_token = ?, version = version + 1"+
			" WHERE id = (SELECT id FROM pulse_sessions WHERE due_at <= "+w.now(0)+" ORDER BY due_at, id LIMIT 1"+lock+")"+
			" RETURNING *", text(token)).Scan(ctx, &row)
		return none(err, pulse.ErrNone)
	})
	if s.unanswered(err) {
		err = s.ask(ctx, err, func(ctx context.Context) error {
			row = sessionRow{}
			return none(s.reads.NewRaw("SELECT * FROM pulse_sessions WHERE step_token = ? AND due_at IS NOT NULL", text(token)).Scan(ctx, &row), pulse.ErrNone)
		})
	}
	if errors.Is(err, pulse.ErrNone) {
		return s.noneDue(ctx)
	}
	return row.value(), time.Time{}, err
}

func (s *Store) noneDue(ctx context.Context) (pulse.Session, time.Time, error) {
	next, err := s.nextDue(ctx)
	if err != nil {
		return pulse.Session{}, time.Time{}, err
	}
	return pulse.Session{}, next, pulse.ErrNone
}

// anyDue answers true when in doubt: the UPDATE decides.
func (s *Store) anyDue(ctx context.Context) bool {
	due := true
	_ = s.view(ctx, "look for due sessions", func(ctx context.Context, db bun.IDB) error {
		return db.NewRaw("SELECT EXISTS (SELECT 1 FROM pulse_sessions WHERE due_at <= "+s.sqlNow(0)+")").Scan(ctx, &due)
	})
	return due
}

func (s *Store) nextDue(ctx context.Context) (time.Time, error) {
	var next stamp
	err := s.view(ctx, "find next due session", func(ctx context.Context, db bun.IDB) error {
		return db.NewRaw("SELECT min(due_at) FROM pulse_sessions WHERE due_at IS NOT NULL").Scan(ctx, &next)
	})
	return next.Time, err
}

// Sessions lists sessions, newest first. A list is merged from one piece a
// status, each of which an index gives in order: however many other sessions
// there are, they are not read.
func (s *Store) Sessions(ctx context.Context, f pulse.SessionFilter) ([]pulse.Session, error) {
	if f.ProjectID != "" && !pulse.ValidUUID(string(f.ProjectID)) {
		return nil, nil
	}
	limit := orDefault(f.Limit, 50)
	var rows []sessionRow
	err := s.view(ctx, "list sessions", func(ctx context.Context, db bun.IDB) error {
		query, args := pieces(f, limit)
		return db.NewRaw(query, args...).Scan(ctx, &rows)
	})
	return values(rows, sessionRow.value), err
}

func pieces(f pulse.SessionFilter, limit int) (query string, args []any) {
	where, narrow := whereAddress(f.Address)
	if f.ProjectID != "" {
		where, narrow = where+" AND project_id = ?", append(narrow, uid(f.ProjectID))
	}
	statuses := f.Statuses
	if len(statuses) == 0 {
		statuses = pulse.SessionStatuses()
	}
	var parts []string
	for i, status := range slices.Compact(slices.Sorted(slices.Values(statuses))) {
		parts = append(parts, fmt.Sprintf("SELECT * FROM (SELECT * FROM pulse_sessions WHERE status = ?%s ORDER BY created_at DESC, id DESC LIMIT ?) AS p%d", where, i))
		args = append(append(append(args, text(status)), narrow...), limit)
	}
	return strings.Join(parts, " UNION ALL ") + " ORDER BY created_at DESC, id DESC LIMIT ?", append(args, limit)
}

// whereAddress names the column again as not empty where its index says so:
// SQLite uses a partial index for words that it finds in the query.
func whereAddress(a pulse.Address) (string, []any) {
	switch {
	case a.Zero():
		return "", nil
	case a.Platform == pulse.PlatformTelegram:
		return " AND chat_id = ? AND chat_id <> '' AND chat_thread_id = ?", []any{text(a.Chat), text(a.Thread)}
	case a.Platform == pulse.PlatformSMS:
		return " AND phone_number = ? AND phone_number <> ''", []any{text(a.Chat)}
	case a.Platform == pulse.PlatformDiscord:
		return " AND discord_thread_id = ? AND discord_thread_id <> ''", []any{text(a.Chat)}
	case a.Platform == pulse.PlatformConsole:
		return " AND console_id = ? AND console_id <> ''", []any{text(a.Chat)}
	default:
		return " AND 1 = 0", nil
	}
}

// suffix is how much of an id's end is indexed: what pulse.Short shows.
const suffix = 8

// FindSession reads a session by its id or the end of it, of 8 characters or
// more: pulse.CodeNotFound, pulse.CodeInvalid when several end so or when it
// is too short to name one.
func (s *Store) FindSession(ctx context.Context, idOrSuffix string) (pulse.Session, error) {
	key := strings.ToLower(strings.TrimSpace(idOrSuffix))
	if pulse.ValidUUID(key) {
		return s.Session(ctx, pulse.SessionID(key))
	}
	if key == "" || len(key) > 36 || strings.Trim(key, "0123456789abcdef-") != "" {
		return pulse.Session{}, noSession(idOrSuffix)
	}
	if len(key) < suffix {
		return pulse.Session{}, pulse.Invalid(key+" is too short for a session's id", fmt.Sprintf("give the whole id or at least its last %d characters", suffix))
	}
	indexed := "substr(id, -8) = ?"
	if s.pg {
		indexed = "right(CAST(id AS text), 8) = ?"
	}
	var rows []sessionRow
	err := s.view(ctx, "find session", func(ctx context.Context, db bun.IDB) error {
		return db.NewSelect().Model(&rows).Where(indexed, text(key[len(key)-suffix:])).Where("CAST(id AS text) LIKE ?", "%"+key).Limit(2).Scan(ctx)
	})
	switch {
	case err != nil:
		return pulse.Session{}, err
	case len(rows) == 0:
		return pulse.Session{}, noSession(idOrSuffix)
	case len(rows) > 1:
		return pulse.Session{}, pulse.Invalid("several sessions end in "+key, "give more of the id")
	}
	return rows[0].value(), nil
}

// Moving lists sessions with their event_seq that are pending or running, or
// changed within the last minute.
func (s *Store) Moving(ctx context.Context) (map[pulse.SessionID]int64, error) {
	var rows []struct {
		ID       uid
		EventSeq int64
	}
	err := s.view(ctx, "list moving sessions", func(ctx context.Context, db bun.IDB) error {
		return db.NewRaw("SELECT id, event_seq FROM pulse_sessions WHERE status IN ('pending', 'running')"+
			" UNION ALL SELECT id, event_seq FROM pulse_sessions WHERE status IN (?) AND updated_at >= "+s.sqlNow(-time.Minute),
			bun.List(texts(resting()))).Scan(ctx, &rows)
	})
	out := make(map[pulse.SessionID]int64, len(rows))
	for _, r := range rows {
		out[pulse.SessionID(r.ID)] = r.EventSeq
	}
	return out, err
}

// resting are the states in which nothing happens by itself. They are named,
// because the index of the last change begins with the state.
func resting() []pulse.SessionStatus {
	return slices.DeleteFunc(pulse.SessionStatuses(), func(st pulse.SessionStatus) bool {
		return st == pulse.SessionPending || st == pulse.SessionRunning
	})
}
