package db

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"time"

	"github.com/uptrace/bun"

	"pulseloop/pulse"
)

type auditRow struct {
	bun.BaseModel `bun:"table:audit,alias:a"`

	Seq      int64 `bun:",pk"`
	At       stamp
	Operator text
	Name     text
	Action   text
	Subject  text
	Detail   text
	PrevHash text
	Hash     text
}

// link is the hash of a row: SHA-256 over the row before and the content, as
// a JSON array, so that no two contents look the same.
func (r auditRow) link() text {
	raw, err := json.Marshal([]any{r.PrevHash, r.Seq, r.At.UTC().Truncate(time.Microsecond).Format(stampLayout), r.Operator, r.Name, r.Action, r.Subject, r.Detail})
	if err != nil {
		panic("db: strings and numbers are always JSON: " + err.Error())
	}
	sum := sha256.Sum256(raw)
	return text(hex.EncodeToString(sum[:]))
}

// appendAudit adds entries to the chain. Its head is the last row that any
// change locks.
func (w *work) appendAudit(ctx context.Context, entries []pulse.AuditEntry) error {
	if len(entries) == 0 {
		return nil
	}
	var head struct {
		Seq  int64
		Hash text
	}
	lock := ""
	if w.pg {
		lock = " FOR UPDATE"
	}
	if err := w.db.NewRaw("SELECT seq, hash FROM audit_head WHERE id = 1"+lock).Scan(ctx, &head); err != nil {
		return err
	}
	for _, e := range entries {
		head.Seq++
		row := auditRow{Seq: head.Seq, At: at(w.orNow(e.At).UTC().Truncate(time.Microsecond)), Operator: cleaned(e.Operator), Name: cleaned(e.Name),
			Action: cleaned(e.Action), Subject: cleaned(e.Subject), Detail: cleaned(e.Detail), PrevHash: head.Hash}
		row.Hash = row.link()
		if _, err := w.db.NewInsert().Model(&row).Exec(ctx); err != nil {
			return err
		}
		head.Hash = row.Hash
	}
	_, err := w.db.NewRaw("UPDATE audit_head SET seq = ?, hash = ? WHERE id = 1", head.Seq, head.Hash).Exec(ctx)
	return err
}

// cleaned is what will be stored, so that it is also what is hashed.
func cleaned[T ~string](s T) text { return text(clean(string(s))) }

// VerifyAudit walks the chain and names the first row that was changed,
// removed or added past the store. It answers how many rows there are.
func (s *Store) VerifyAudit(ctx context.Context) (int64, error) {
	const page = 500
	var seq int64
	var hash text
	err := s.view(ctx, "verify audit", func(ctx context.Context, db bun.IDB) error {
		for {
			var out []auditRow
			if err := db.NewSelect().Model(&out).Where("seq > ?", seq).Order("seq").Limit(page).Scan(ctx); err != nil {
				return err
			}
			for _, r := range out {
				if r.Seq != seq+1 || r.PrevHash != hash || r.Hash != r.link() {
					return broken(seq + 1)
				}
				seq, hash = r.Seq, r.Hash
			}
			if len(out) < page {
				break
			}
		}
		var head struct {
			Seq  int64
			Hash text
		}
		if err := db.NewRaw("SELECT seq, hash FROM audit_head WHERE id = 1").Scan(ctx, &head); err != nil {
			return err
		}
		// Entries may have been added since the last page was read.
		if head.Seq < seq || (head.Seq == seq && head.Hash != hash) {
			return broken(seq)
		}
		if head.Seq > seq {
			var n int64
			if err := db.NewRaw("SELECT count(*) FROM audit WHERE seq > ?", seq).Scan(ctx, &n); err != nil {
				return err
			}
			if n < head.Seq-seq {
				return broken(seq + 1)
			}
		}
		return nil
	})
	return seq, err
}

func broken(seq int64) error {
	return &pulse.Error{Code: pulse.CodeConflict, Message: fmt.Sprintf("the audit record is broken at entry %d", seq), Hint: "somebody changed it past pulse: compare it with a backup"}
}
