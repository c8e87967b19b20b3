package db

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"
	"unicode"
	"unicode/utf8"

	"github.com/uptrace/bun"

	"pulseloop/pulse"
)

const (
	maxIndexed   = 100_000 // characters of a turn: a tsvector ends at 1 MB
	maxWords     = 24
	maxWordRunes = 64
)

// indexTurns fills the text index for those of the turns that are completed.
func (w *work) indexTurns(ctx context.Context, ids []uid) error {
	if len(ids) == 0 {
		return nil
	}
	query := fmt.Sprintf(`INSERT OR REPLACE INTO turns_fts (rowid, text)
		SELECT t.rid, substr(string_agg(m.text, ' ' ORDER BY m.seq), 1, %d) FROM turns t JOIN turn_messages m ON m.turn_id = t.id
		WHERE t.id IN (?) AND t.status = 'completed' GROUP BY t.rid`, maxIndexed)
	if w.pg {
		query = fmt.Sprintf(`UPDATE turns SET search = to_tsvector('simple', b.body) || to_tsvector('english', b.body)
			FROM (SELECT turn_id, left(string_agg(text, ' ' ORDER BY seq), %d) AS body FROM turn_messages WHERE turn_id IN (?) GROUP BY turn_id) b
			WHERE turns.id = b.turn_id AND turns.status = 'completed'`, maxIndexed)
	}
	_, err := w.db.NewRaw(query, bun.List(ids)).Exec(ctx)
	return err
}

type hitRow struct {
	turnRow `bun:",extend"`

	Score   float64
	Matched int
}

// SearchTurns finds completed turns of a project by full text: any of the
// words, best first. The similarity is the share of the query's words that
// the turn has, less up to half of it by how far its rank is from the best.
// Whatever the query holds, it is nothing but words.
func (s *Store) SearchTurns(ctx context.Context, project pulse.ProjectID, query string, limit int) ([]pulse.TurnHit, error) {
	words := searchWords(query)
	if len(words) == 0 || limit <= 0 || !pulse.ValidUUID(string(project)) {
		return nil, nil
	}
	find := findLite
	if s.pg {
		find = findPostgres
	}
	sql, args := find(words, project, 3*limit) // some more, because words shared reorder them
	var out []hitRow
	err := s.view(ctx, "search turns", func(ctx context.Context, db bun.IDB) error {
		return db.NewRaw(sql, args...).Scan(ctx, &out)
	})
	if err != nil {
		return nil, err
	}
	return rankHits(out, len(words), limit), nil
}

func rankHits(found []hitRow, words, limit int) []pulse.TurnHit {
	top := 0.0
	for _, h := range found {
		top = max(top, h.Score)
	}
	hits := make([]pulse.TurnHit, 0, len(found))
	for _, h := range found {
		share := 1.0
		if top > 0 {
			share = max(0, h.Score/top)
		}
		hits = append(hits, pulse.TurnHit{Turn: h.turnRow.value(), Similarity: float64(min(h.Matched, words)) / float64(words) * (1 + share) / 2})
	}
	slices.SortStableFunc(hits, func(a, b pulse.TurnHit) int {
		if c := cmp.Compare(b.Similarity, a.Similarity); c != 0 {
			return c
		}
		return cmp.Compare(b.Turn.ID, a.Turn.ID) // the newer
	})
	return hits[:min(limit, len(hits))]
}

// findLite asks FTS5. Words hold letters and digits only and stand in quotes,
// where nothing is syntax.
func findLite(words []string, project pulse.ProjectID, limit int) (string, []any) {
	quoted := make([]string, len(words))
	matched := make([]string, len(words))
	var args []any
	for i, w := range words {
		quoted[i] = `"` + w + `"`
		matched[i] = "(c.rid IN (SELECT rowid FROM turns_fts WHERE turns_fts MATCH ?))"
		args = append(args, quoted[i])
	}
	sql := "SELECT " + turnColumns + ", c.score, " + strings.Join(matched, " + ") + " AS matched FROM (" +
		"SELECT f.rowid AS rid, -bm25(turns_fts) AS score FROM turns_fts f JOIN turns k ON k.rid = f.rowid" +
		" WHERE turns_fts MATCH ? AND k.project_id = ? AND k.status = 'completed' ORDER BY bm25(turns_fts), k.rid DESC LIMIT ?" +
		") c JOIN turns t ON t.rid = c.rid"
	return sql, append(args, strings.Join(quoted, " OR "), uid(project), limit)
}

// findPostgres matches words as they stand and by their English stem.
func findPostgres(words []string, project pulse.ProjectID, limit int) (string, []any) {
	quoted := make([]string, len(words))
	matched := make([]string, len(words))
	var args []any
	for i, w := range words {
		quoted[i] = "'" + w + "'"
		matched[i] = "(c.search @@ (to_tsquery('simple', ?) || to_tsquery('english', ?)))::int"
		args = append(args, quoted[i], quoted[i])
	}
	all := strings.Join(quoted, " | ")
	sql := "SELECT " + turnColumns + ", c.score, " + strings.Join(matched, " + ") + " AS matched FROM (" +
		"SELECT k.id, k.search, ts_rank(k.search, q.q, 1) AS score FROM turns k, (SELECT to_tsquery('simple', ?) || to_tsquery('english', ?) AS q) q" +
		" WHERE k.search @@ q.q AND k.project_id = ? AND k.status = 'completed' ORDER BY score DESC, k.created_at DESC LIMIT ?" +
		") c JOIN turns t ON t.id = c.id"
	return sql, append(args, all, all, uid(project), limit)
}

// searchWords gives the distinct words of a query in lower case; the small
// words of English only if there are no others.
func searchWords(query string) []string {
	var words, small []string
	for _, w := range strings.FieldsFunc(strings.ToLower(clean(query)), func(r rune) bool { return !unicode.IsLetter(r) && !unicode.IsDigit(r) }) {
		if utf8.RuneCountInString(w) > maxWordRunes {
			w = string([]rune(w)[:maxWordRunes])
		}
		switch {
		case slices.Contains(words, w) || slices.Contains(small, w):
		case smallWords[w]:
			small = append(small, w)
		case len(words) < maxWords:
			words = append(words, w)
		}
	}
	if len(words) == 0 {
		return small[:min(len(small), maxWords)]
	}
	return words
}

var smallWords = func() map[string]bool {
	out := map[string]bool{}
	for w := range strings.FieldsSeq("a an and are as at be but by do for from has have i if in is it its of on or so that the their them then there this to was we were will with you your") {
		out[w] = true
	}
	return out
}()
