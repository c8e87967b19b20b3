package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"time"
)

// where says what a contender's process is given.
type where int

const (
	nowhere  where = iota
	postgres       // an empty database, its address in BENCH_URL
	sqlite         // an empty folder on disk, its path in BENCH_DIR
)

// contender is one way of doing what a contest measures.
type contender struct {
	name  string
	on    where
	argv  []string // "self" as the first word is this program
	needs string   // a program that must be there; else the contender is left out
}

// ratio holds a figure against another, or, without one, against a bound alone.
type ratio struct {
	what   string
	of     string // contender
	metric string
	to     string  // contender; "" = the figure itself
	toName string  // its metric, if it has another name
	goal   float64 // 0: none is set, the ratio is only shown
	least  bool    // the goal is a lower bound
	never  bool    // the goal is that it does not happen, in any round
}

type contest struct {
	id         string
	title      string
	metric     string // the first of the table
	contenders []contender
	ratios     []ratio
	rounds     int // 0: as asked for
}

// outcome is everything a contest gave.
type outcome struct {
	ID      string                        `json:"id"`
	Title   string                        `json:"title"`
	Metric  string                        `json:"metric"`
	At      time.Time                     `json:"at"`
	Rounds  int                           `json:"rounds"`
	Load    []float64                     `json:"load"` // of the machine, before each round
	Medians map[string]map[string]float64 `json:"medians"`
	Samples map[string][]sample           `json:"samples"`
	Ratios  []verdict                     `json:"ratios"`
	LeftOut map[string]string             `json:"left_out,omitempty"`
	order   []string
	failed  bool // a contender of the product, or a bare one, could not be measured
}

type verdict struct {
	What  string  `json:"what"`
	Value float64 `json:"value"`
	Goal  float64 `json:"goal"`
	Least bool    `json:"least"`
	Never bool    `json:"never,omitempty"`
	Holds bool    `json:"holds"`
}

// run goes round the contenders. Each round begins with another one. One that
// fails is left out from then on, with all that it gave, and said.
func (c contest) run(ctx context.Context, b *bench) (outcome, error) {
	out := outcome{ID: c.id, Title: c.title, At: time.Now().UTC(), Medians: map[string]map[string]float64{},
		Samples: map[string][]sample{}, LeftOut: map[string]string{}, Metric: c.metric}
	var in []contender
	for _, k := range c.contenders {
		if why := k.missing(); why != "" {
			out.LeftOut[k.name] = why
			continue
		}
		in = append(in, k)
		out.order = append(out.order, k.name)
	}
	out.Rounds = b.rounds
	if c.rounds > 0 {
		out.Rounds = c.rounds
	}
	for round := range out.Rounds {
		out.Load = append(out.Load, load())
		for i := range in {
			k := in[(i+round)%len(in)]
			if out.LeftOut[k.name] != "" {
				continue
			}
			s, err := b.measure(ctx, k)
			if ctx.Err() != nil {
				return out, ctx.Err()
			}
			if err != nil {
				b.logf("%s, %s: %v", c.id, k.name, err)
				out.LeftOut[k.name] = fmt.Sprintf("failed in round %d: %s", round+1, brief(err))
				out.failed = out.failed || k.argv[0] == "self"
				delete(out.Samples, k.name)
				out.order = slices.DeleteFunc(out.order, func(name string) bool { return name == k.name })
				continue
			}
			b.logf("%s %d/%d %-28s %s", c.id, round+1, out.Rounds, k.name, s.text(c.metric))
			out.Samples[k.name] = append(out.Samples[k.name], s)
		}
	}
	out.sum(c)
	return out, nil
}

// brief is the beginning of an error that quotes what a program printed.
func brief(err error) string {
	text := strings.Join(strings.Fields(err.Error()), " ")
	return text[:min(len(text), 160)]
}

func (k contender) missing() string {
	if k.needs == "" {
		return ""
	}
	if _, err := exec.LookPath(k.needs); err != nil {
		return filepath.Base(k.needs) + " is not there"
	}
	return ""
}

func (o *outcome) sum(c contest) {
	for name, samples := range o.Samples {
		by := map[string][]float64{}
		for _, s := range samples {
			for metric, v := range s {
				by[metric] = append(by[metric], v)
			}
		}
		o.Medians[name] = map[string]float64{}
		for metric, all := range by {
			o.Medians[name][metric] = median(all)
		}
	}
	for _, r := range c.ratios {
		if v, ok := o.verdict(r); ok {
			o.Ratios = append(o.Ratios, v)
		}
	}
}

func (o *outcome) verdict(r ratio) (verdict, bool) {
	of, to := o.Samples[r.of], o.Samples[r.to]
	if len(of) == 0 || (r.to != "" && len(to) == 0) {
		return verdict{}, false
	}
	metric := r.toName
	if metric == "" {
		metric = r.metric
	}
	var all []float64
	for i := range of {
		v := of[i][r.metric]
		if r.to != "" {
			v /= to[i][metric]
		}
		all = append(all, v)
	}
	v := median(all)
	if r.never {
		v = slices.Max(all)
	}
	holds := v <= r.goal
	if r.least {
		holds = v >= r.goal
	}
	return verdict{What: r.what, Value: v, Goal: r.goal, Least: r.least, Never: r.never, Holds: holds}, true
}

// measure runs the contender's process once, on a place of its own.
func (b *bench) measure(ctx context.Context, k contender) (sample, error) {
	ctx, cancel := context.WithTimeout(ctx, 10*time.Minute)
	defer cancel()
	// A fake that compares every call with a description would be measured too.
	env := append(os.Environ(), "BENCH_BIN="+b.bin, "BENCH_ROOT="+b.root, "BENCH_URL=", "BENCH_DIR=", "PULSE_SPECS_DIR=")
	switch k.on {
	case postgres:
		url, drop, err := b.newDatabase(ctx)
		if err != nil {
			return nil, err
		}
		defer drop()
		env = append(env, "BENCH_URL="+url)
	case sqlite:
		dir, err := os.MkdirTemp(b.dir, "bench-")
		if err != nil {
			return nil, fmt.Errorf("make folder: %w", err)
		}
		defer os.RemoveAll(dir)
		env = append(env, "BENCH_DIR="+dir)
	}
	argv := k.argv
	if argv[0] == "self" {
		argv = append([]string{b.self, "run"}, argv[1:]...)
	}
	cmd := exec.CommandContext(ctx, argv[0], argv[1:]...)
	cmd.Cancel = func() error { return cmd.Process.Signal(os.Interrupt) } // so that it ends what it started
	cmd.WaitDelay = 10 * time.Second
	var stdout, stderr bytes.Buffer
	cmd.Stdout, cmd.Stderr, cmd.Env = &stdout, &stderr, env
	if err := cmd.Run(); err != nil {
		return nil, fmt.Errorf("run %s: %w\n%s%s", strings.Join(k.argv, " "), err, stdout.String(), stderr.String())
	}
	lines := strings.Split(strings.TrimSpace(stdout.String()), "\n")
	var s sample
	if err := json.Unmarshal([]byte(lines[len(lines)-1]), &s); err != nil {
		return nil, errors.Join(fmt.Errorf("read what %s printed: %w\n%s", k.name, err, stdout.String()))
	}
	return s, nil
}
