package migrations

import (
	"testing"
	"testing/fstest"
)

func TestBothDialectsHaveTheSameVersions(t *testing.T) {
	pg, err := List(Postgres)
	if err != nil {
		t.Fatal(err)
	}
	lite, err := List(SQLite)
	if err != nil {
		t.Fatal(err)
	}
	if len(pg) == 0 || len(pg) != len(lite) {
		t.Fatalf("%d migrations for PostgreSQL, %d for SQLite", len(pg), len(lite))
	}
	for i := range pg {
		if pg[i].Version != lite[i].Version || pg[i].Name != lite[i].Name {
			t.Errorf("number %d is %q there and %q here", i+1, pg[i].Name, lite[i].Name)
		}
	}
}

func TestBadNamesAreRefused(t *testing.T) {
	for name, files := range map[string][]string{
		"a gap":       {"0001_a.sql", "0003_b.sql"},
		"a double":    {"0001_a.sql", "0001_b.sql"},
		"no number":   {"first.sql"},
		"not from 1":  {"0002_a.sql"},
		"only number": {"0001.sql"},
	} {
		fsys := fstest.MapFS{}
		for _, f := range files {
			fsys["x/"+f] = &fstest.MapFile{Data: []byte("SELECT 1")}
		}
		if _, err := read(fsys, "x"); err == nil {
			t.Errorf("%s: %v was accepted", name, files)
		}
	}
}
