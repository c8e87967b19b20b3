package main

import (
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"maps"
	"os"
	"os/signal"
	"path/filepath"
	"runtime/pprof"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	if err := start(ctx, os.Args[1:]); err != nil {
		fmt.Fprintln(os.Stderr, "bench:", err)
		os.Exit(1)
	}
}

func start(ctx context.Context, args []string) error {
	if len(args) > 1 && args[0] == "run" {
		all := programs()
		maps.Copy(all, wholePrograms())
		program, ok := all[args[1]]
		if !ok {
			return fmt.Errorf("there is no program %q", args[1])
		}
		stop, err := profiled()
		if err != nil {
			return err
		}
		defer stop()
		s, err := program(ctx, args[2:])
		if err != nil {
			return err
		}
		return s.print()
	}
	return compare(ctx, args)
}

// profiled writes a CPU profile of this process to BENCH_PROFILE, if set.
func profiled() (func(), error) {
	name := os.Getenv("BENCH_PROFILE")
	if name == "" {
		return func() {}, nil
	}
	f, err := os.Create(name)
	if err != nil {
		return nil, fmt.Errorf("create profile: %w", err)
	}
	if err := pprof.StartCPUProfile(f); err != nil {
		return nil, fmt.Errorf("start profile: %w", err)
	}
	return func() { pprof.StopCPUProfile(); f.Close() }, nil
}

// bench is a run of contests.
type bench struct {
	self   string
	bin    string // where the peers' programs and the product's binary are
	root   string // the product's source
	dir    string // a folder on the disk that is to be measured
	admin  string // address of a PostgreSQL in which databases may be made
	rounds int
	logf   func(format string, args ...any)
}

func compare(ctx context.Context, args []string) error {
	b := &bench{admin: os.Getenv("PULSE_TEST_DATABASE_URL"), logf: func(f string, a ...any) { fmt.Fprintf(os.Stderr, f+"\n", a...) }}
	flags := flag.NewFlagSet("bench", flag.ContinueOnError)
	flags.IntVar(&b.rounds, "rounds", 5, "rounds of each contest")
	flags.StringVar(&b.bin, "bin", "../.cache/bench", "folder of the peers' programs")
	flags.StringVar(&b.root, "root", "..", "folder of the product's source")
	flags.StringVar(&b.dir, "dir", os.TempDir(), "folder for database files")
	only := flags.String("only", "", "contests to run, with commas; all without it")
	file := flags.String("json", "", "file for everything that was measured, added to what it holds")
	rendered := flags.String("render", "", "measure nothing: print the outcomes in this file as Markdown")
	if err := flags.Parse(args); err != nil {
		return err
	}
	if *rendered != "" {
		return render(os.Stdout, *rendered)
	}
	var err error
	if b.self, err = os.Executable(); err != nil {
		return fmt.Errorf("find this program: %w", err)
	}
	if b.bin, err = filepath.Abs(b.bin); err != nil {
		return fmt.Errorf("find the peers: %w", err)
	}
	if b.root, err = filepath.Abs(b.root); err != nil {
		return fmt.Errorf("find the source: %w", err)
	}
	fmt.Println(machine())
	return b.all(ctx, strings.FieldsFunc(*only, func(r rune) bool { return r == ',' }), *file)
}

// all runs the contests and says at the end which figures are missing. What
// could not be had of a peer is no failure; what failed of ours is.
func (b *bench) all(ctx context.Context, only []string, file string) error {
	var missing, failed []string
	for _, c := range append(b.contests(), b.wholes()...) {
		if len(only) > 0 && !slices.Contains(only, c.id) {
			continue
		}
		if b.admin == "" && slices.ContainsFunc(c.contenders, func(k contender) bool { return k.on == postgres }) {
			missing = append(missing, c.id+": no PostgreSQL in PULSE_TEST_DATABASE_URL")
			continue
		}
		begin := time.Now()
		out, err := c.run(ctx, b)
		if err != nil {
			return err
		}
		out.table(os.Stdout)
		fmt.Printf("  (took %s)\n", time.Since(begin).Round(time.Second))
		for _, name := range slices.Sorted(maps.Keys(out.LeftOut)) {
			missing = append(missing, fmt.Sprintf("%s, %s: %s", c.id, name, out.LeftOut[name]))
		}
		if out.failed {
			failed = append(failed, c.id)
		}
		if file != "" && len(out.Samples) > 0 {
			if err := save(file, out); err != nil {
				return err
			}
		}
	}
	if len(missing) > 0 {
		fmt.Printf("\nNot measured:\n  %s\n", strings.Join(missing, "\n  "))
	}
	if len(failed) > 0 {
		return fmt.Errorf("a part failed of %s", strings.Join(failed, ", "))
	}
	return nil
}

func outcomes(file string) (map[string]outcome, error) {
	all := map[string]outcome{}
	raw, err := os.ReadFile(file)
	if err != nil {
		return all, fmt.Errorf("read figures: %w", err)
	}
	if err := json.Unmarshal(raw, &all); err != nil {
		return nil, fmt.Errorf("read figures in %s: %w", file, err)
	}
	return all, nil
}

// save puts the outcome in the place of an earlier one of the same contest.
func save(file string, o outcome) error {
	all, err := outcomes(file)
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		return err
	}
	all[o.ID] = o
	raw, err := json.MarshalIndent(all, "", " ")
	if err != nil {
		return fmt.Errorf("write figures: %w", err)
	}
	if err := os.WriteFile(file, append(raw, '\n'), 0o644); err != nil {
		return fmt.Errorf("write figures: %w", err)
	}
	return nil
}

// newDatabase makes a database for one contender and gives the way to drop it.
func (b *bench) newDatabase(ctx context.Context) (string, func(), error) {
	conn, err := pgx.Connect(ctx, b.admin)
	if err != nil {
		return "", nil, fmt.Errorf("connect to PostgreSQL: %w", err)
	}
	name := "bench_" + strconv.FormatInt(time.Now().UnixNano(), 36)
	if _, err := conn.Exec(ctx, "CREATE DATABASE "+name); err != nil {
		conn.Close(ctx)
		return "", nil, fmt.Errorf("make database: %w", err)
	}
	drop := func() {
		ctx := context.WithoutCancel(ctx)
		defer conn.Close(ctx)
		if _, err := conn.Exec(ctx, "DROP DATABASE "+name+" WITH (FORCE)"); err != nil {
			b.logf("drop database %s: %v", name, err)
		}
		// What one contender leaves to be written must not slow the next.
		if _, err := conn.Exec(ctx, "CHECKPOINT"); err != nil {
			b.logf("checkpoint: %v", err)
		}
	}
	return withDatabase(b.admin, name), drop, nil
}
