package db_test

import (
	"testing"

	"pulseloop/db/dbtest"
)

func TestSQLite(t *testing.T)   { dbtest.Run(t, dbtest.NewSQLite) }
func TestPostgres(t *testing.T) { dbtest.NewPostgres(t); dbtest.Run(t, dbtest.NewPostgres) }
