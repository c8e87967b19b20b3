package db

import (
	"context"
	"time"

	"github.com/uptrace/bun"

	"pulseloop/pulse"
)

type operatorRow struct {
	bun.BaseModel `bun:"table:operators,alias:o"`

	ID        uid `bun:",pk"`
	Platform  text
	UserID    text
	Name      text
	Role      text
	CreatedAt stamp
}

func (r operatorRow) value() pulse.Operator {
	return pulse.Operator{ID: pulse.OperatorID(r.ID), Platform: pulse.Platform(r.Platform), UserID: string(r.UserID),
		Name: string(r.Name), Role: pulse.OperatorRole(r.Role), CreatedAt: r.CreatedAt.Time}
}

// putOperator keeps the id that a person already has.
func (w *work) putOperator(ctx context.Context, o pulse.Operator) error {
	row := operatorRow{ID: uid(o.ID), Platform: text(o.Platform), UserID: text(o.UserID), Name: text(o.Name), Role: text(o.Role), CreatedAt: w.orNow(o.CreatedAt)}
	_, err := w.db.NewInsert().Model(&row).On("CONFLICT (platform, user_id) DO UPDATE").Set("name = EXCLUDED.name, role = EXCLUDED.role").Exec(ctx)
	return err
}

// Operator reads who a sender is; pulse.ErrNone.
func (s *Store) Operator(ctx context.Context, p pulse.Platform, userID string) (pulse.Operator, error) {
	var row operatorRow
	err := s.view(ctx, "read operator", func(ctx context.Context, db bun.IDB) error {
		return none(db.NewSelect().Model(&row).Where("platform = ?", text(p)).Where("user_id = ?", text(userID)).Scan(ctx), pulse.ErrNone)
	})
	return row.value(), err
}

// Operators lists every person who may speak.
func (s *Store) Operators(ctx context.Context) ([]pulse.Operator, error) {
	var out []operatorRow
	err := s.view(ctx, "list operators", func(ctx context.Context, db bun.IDB) error {
		return db.NewSelect().Model(&out).Order("platform", "created_at", "id").Scan(ctx)
	})
	return values(out, operatorRow.value), err
}

// CountOperators says how many people of a platform may speak.
func (s *Store) CountOperators(ctx context.Context, p pulse.Platform) (int, error) {
	var n int
	err := s.view(ctx, "count operators", func(ctx context.Context, db bun.IDB) error {
		return db.NewRaw("SELECT count(*) FROM operators WHERE platform = ?", text(p)).Scan(ctx, &n)
	})
	return n, err
}

type codeRow struct {
	bun.BaseModel `bun:"table:pairing_codes,alias:c"`

	Hash      text `bun:",pk"`
	Role      text
	CreatedAt stamp
	ExpiresAt stamp
	UsedAt    stamp
}

func (r codeRow) value() pulse.PairingCode {
	return pulse.PairingCode{Hash: string(r.Hash), Role: pulse.OperatorRole(r.Role), CreatedAt: r.CreatedAt.Time, ExpiresAt: r.ExpiresAt.Time}
}

func (w *work) insertCode(ctx context.Context, c pulse.PairingCode) error {
	row := codeRow{Hash: text(c.Hash), Role: text(c.Role), CreatedAt: w.orNow(c.CreatedAt), ExpiresAt: at(c.ExpiresAt)}
	_, err := w.db.NewInsert().Model(&row).Exec(ctx)
	return err
}

// useCode spends a code: of two at once, one finds it spent.
func (w *work) useCode(ctx context.Context, hash string) error {
	now := w.now(0)
	n, err := rows(w.db.NewRaw("UPDATE pairing_codes SET used_at = "+now+" WHERE hash = ? AND used_at IS NULL AND expires_at > "+now, text(hash)).Exec(ctx))
	if err == nil && n == 0 {
		return pulse.ErrStale
	}
	return err
}

// ActiveCodes lists the codes that can still be used.
func (s *Store) ActiveCodes(ctx context.Context) ([]pulse.PairingCode, error) {
	var out []codeRow
	err := s.view(ctx, "list pairing codes", func(ctx context.Context, db bun.IDB) error {
		return db.NewSelect().Model(&out).Where("used_at IS NULL").Where("expires_at > " + s.sqlNow(0)).Order("created_at").Scan(ctx)
	})
	return values(out, codeRow.value), err
}

// FailedPairing counts a wrong code and answers how many there were from this
// sender within the last hour, this one included.
func (s *Store) FailedPairing(ctx context.Context, p pulse.Platform, userID string) (int, error) {
	var n int
	err := s.write(ctx, "count wrong pairing code", func(ctx context.Context, w *work) error {
		if _, err := w.db.NewRaw("DELETE FROM pairing_failures WHERE at <= " + w.now(-time.Hour)).Exec(ctx); err != nil {
			return err
		}
		if _, err := w.db.NewRaw("INSERT INTO pairing_failures (platform, user_id, at) VALUES (?, ?, "+w.now(0)+")", text(p), text(userID)).Exec(ctx); err != nil {
			return err
		}
		return w.db.NewRaw("SELECT count(*) FROM pairing_failures WHERE platform = ? AND user_id = ?", text(p), text(userID)).Scan(ctx, &n)
	})
	return n, err
}

type channelRow struct {
	bun.BaseModel `bun:"table:channels,alias:c"`

	Platform  text `bun:",pk"`
	Chat      text `bun:",pk"`
	Thread    text `bun:",pk"`
	ProjectID uid
	SessionID uid
	UpdatedAt stamp
}

func (w *work) putChannel(ctx context.Context, c pulse.Channel) error {
	row := channelRow{Platform: text(c.Address.Platform), Chat: text(c.Address.Chat), Thread: text(c.Address.Thread),
		ProjectID: uid(c.ProjectID), SessionID: uid(c.SessionID), UpdatedAt: at(w.at)}
	_, err := w.db.NewInsert().Model(&row).On("CONFLICT (platform, chat, thread) DO UPDATE").
		Set("project_id = EXCLUDED.project_id, session_id = EXCLUDED.session_id, updated_at = EXCLUDED.updated_at").Exec(ctx)
	return err
}

// Channel reads what a place is bound to; pulse.ErrNone.
func (s *Store) Channel(ctx context.Context, a pulse.Address) (pulse.Channel, error) {
	var row channelRow
	err := s.view(ctx, "read channel", func(ctx context.Context, db bun.IDB) error {
		return none(db.NewSelect().Model(&row).Where("platform = ?", text(a.Platform)).Where("chat = ?", text(a.Chat)).
			Where("thread = ?", text(a.Thread)).Scan(ctx), pulse.ErrNone)
	})
	if err != nil {
		return pulse.Channel{}, err
	}
	return pulse.Channel{Address: a, ProjectID: pulse.ProjectID(row.ProjectID), SessionID: pulse.SessionID(row.SessionID)}, nil
}
