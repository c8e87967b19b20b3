// Package migrations holds the schema as embedded SQL: one folder a database,
// the same list of versions in both. It only reads its own files; applying
// them is the store's work. A released file is never changed, a new version
// is added instead. Safe for use from many goroutines.
package migrations

import (
	"embed"
	"fmt"
	"io/fs"
	"path"
	"strconv"
	"strings"
)

//go:embed postgres/*.sql sqlite/*.sql
var files embed.FS

// Dialect names a folder of migrations.
type Dialect string

const (
	Postgres Dialect = "postgres"
	SQLite   Dialect = "sqlite"
)

// Migration is one step of the schema.
type Migration struct {
	Version int
	Name    string // what the file is called after its number
	SQL     string // several statements
}

// List gives the migrations of a dialect by version. Versions count from 1
// without a gap.
func List(d Dialect) ([]Migration, error) {
	return read(files, string(d))
}

func read(fsys fs.FS, dir string) ([]Migration, error) {
	entries, err := fs.ReadDir(fsys, dir) // sorted by name
	if err != nil {
		return nil, fmt.Errorf("list migrations: %w", err)
	}
	var out []Migration
	for _, e := range entries {
		number, name, ok := strings.Cut(strings.TrimSuffix(e.Name(), ".sql"), "_")
		version, err := strconv.Atoi(number)
		if !ok || err != nil {
			return nil, fmt.Errorf("list migrations: %s/%s is not named NUMBER_NAME.sql", dir, e.Name())
		}
		if version != len(out)+1 {
			return nil, fmt.Errorf("list migrations: %s/%s should have number %d", dir, e.Name(), len(out)+1)
		}
		sql, err := fs.ReadFile(fsys, path.Join(dir, e.Name()))
		if err != nil {
			return nil, fmt.Errorf("read migration: %w", err)
		}
		out = append(out, Migration{Version: version, Name: name, SQL: string(sql)})
	}
	return out, nil
}
