package main

import (
	"fmt"
	"log/slog"
	"strings"

	"github.com/spf13/cobra"

	"pulseloop/configs"
	"pulseloop/db"
)

func newMigrate(o *options) *cobra.Command {
	return &cobra.Command{
		Use: "migrate", Short: "Bring the database's schema up to date (every start does it too)", Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			cfg, err := o.load()
			if err != nil {
				return err
			}
			if _, err := ensureDataDir(cfg, o.caution); err != nil {
				return err
			}
			store, err := db.Open(cmd.Context(), db.Config{URL: cfg.DatabaseURL.Reveal(), Path: sqliteFile(cfg), Log: slog.New(slog.DiscardHandler)})
			if err != nil {
				return err
			}
			defer store.Close()
			n, err := store.Migrate(cmd.Context())
			if err != nil {
				return err
			}
			v, err := store.Version(cmd.Context())
			if err != nil {
				return err
			}
			if o.json {
				return o.printJSON(map[string]int{"applied": n, "version": v})
			}
			o.printf("%d migrations applied; the schema is at version %d\n", n, v)
			return nil
		},
	}
}

func newConfig(o *options) *cobra.Command {
	return &cobra.Command{
		Use: "config", Short: "Print the configuration in force, without secrets", Args: cobra.NoArgs,
		RunE: func(*cobra.Command, []string) error {
			cfg, err := o.load()
			if err != nil {
				return err
			}
			if o.json {
				m, err := configs.Map(cfg)
				if err != nil {
					return err
				}
				return o.printJSON(m)
			}
			text, err := configs.Text(cfg)
			if err != nil {
				return err
			}
			from := cfg.File
			if from == "" {
				from = "no file: defaults and environment"
			}
			fmt.Fprintf(o.out, "# %s\n%s\n", from, strings.TrimSpace(text))
			return nil
		},
	}
}
