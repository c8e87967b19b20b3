package main

import (
	"fmt"
	"io"
	"maps"
	"math"
	"net/url"
	"os"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"time"
)

// load is the machine's load average of the last minute.
func load() float64 {
	raw, err := os.ReadFile("/proc/loadavg")
	if err != nil {
		return math.NaN()
	}
	one, _, _ := strings.Cut(string(raw), " ")
	v, err := strconv.ParseFloat(one, 64)
	if err != nil {
		return math.NaN()
	}
	return v
}

func machine() string {
	model := "unknown processor"
	if raw, err := os.ReadFile("/proc/cpuinfo"); err == nil {
		for line := range strings.SplitSeq(string(raw), "\n") {
			if name, value, ok := strings.Cut(line, ":"); ok && strings.TrimSpace(name) == "model name" {
				model = strings.TrimSpace(value)
				break
			}
		}
	}
	return fmt.Sprintf("%s, %s, %d CPUs, %s, load %.1f", time.Now().UTC().Format(time.DateOnly), model, runtime.NumCPU(), runtime.Version(), load())
}

func (s sample) text(first string) string {
	names := slices.Sorted(maps.Keys(s))
	slices.SortStableFunc(names, func(a, b string) int {
		switch {
		case a == first && b != first:
			return -1
		case b == first && a != first:
			return 1
		}
		return 0
	})
	var out []string
	for _, n := range names {
		out = append(out, n+" "+short(s[n]))
	}
	return strings.Join(out, ", ")
}

func short(v float64) string {
	switch a := math.Abs(v); {
	case a >= 1000:
		return strconv.FormatFloat(v, 'f', 0, 64)
	case a >= 10:
		return strconv.FormatFloat(v, 'f', 1, 64)
	case v == math.Trunc(v):
		return strconv.FormatFloat(v, 'f', 0, 64)
	default:
		return strconv.FormatFloat(v, 'f', 3, 64)
	}
}

func (o outcome) table(w io.Writer) {
	fmt.Fprintf(w, "\n%s: %s (%d rounds, load %s to %s)\n", o.ID, o.Title, o.Rounds, short(slices.Min(o.Load)), short(slices.Max(o.Load)))
	for _, name := range o.order {
		fmt.Fprintf(w, "  %-30s %s\n", name, sample(o.Medians[name]).text(o.Metric))
	}
	for _, name := range slices.Sorted(maps.Keys(o.LeftOut)) {
		fmt.Fprintf(w, "  %-30s left out: %s\n", name, o.LeftOut[name])
	}
	for _, r := range o.Ratios {
		bound, holds := "at most", "holds"
		if r.Least {
			bound = "at least"
		}
		if !r.Holds {
			holds = "FALLS SHORT"
		}
		if r.Never {
			fmt.Fprintf(w, "  = %-60s %s at most in a round (none in any) %s\n", r.What, short(r.Value), holds)
			continue
		}
		if r.Goal == 0 {
			fmt.Fprintf(w, "  = %-60s %s\n", r.What, short(r.Value))
			continue
		}
		fmt.Fprintf(w, "  = %-60s %s (%s %s) %s\n", r.What, short(r.Value), bound, short(r.Goal), holds)
	}
}

// render gives the outcomes of a file as the tables of docs/benchmarks.md.
func render(w io.Writer, file string) error {
	all, err := outcomes(file)
	if err != nil {
		return err
	}
	for _, id := range slices.Sorted(maps.Keys(all)) {
		o := all[id]
		fmt.Fprintf(w, "### %s: %s\n\n%s, %d rounds, load %s to %s\n\n| contender | median of the rounds |\n|---|---|\n", o.ID, o.Title,
			o.At.Format(time.DateTime), o.Rounds, short(slices.Min(o.Load)), short(slices.Max(o.Load)))
		for _, name := range slices.Sorted(maps.Keys(o.Medians)) {
			fmt.Fprintf(w, "| %s | %s |\n", name, sample(o.Medians[name]).text(o.Metric))
		}
		for _, name := range slices.Sorted(maps.Keys(o.LeftOut)) {
			fmt.Fprintf(w, "| %s | left out: %s |\n", name, o.LeftOut[name])
		}
		fmt.Fprint(w, "\n| ratio, or figure with a bound | measured | goal | |\n|---|---|---|---|\n")
		for _, r := range o.Ratios {
			bound, holds := "≤", "holds"
			if r.Least {
				bound = "≥"
			}
			if !r.Holds {
				holds = "**falls short**"
			}
			if r.Never {
				fmt.Fprintf(w, "| %s, worst round | %s | none in any | %s |\n", r.What, short(r.Value), holds)
				continue
			}
			if r.Goal == 0 {
				fmt.Fprintf(w, "| %s | %s | none set | |\n", r.What, short(r.Value))
				continue
			}
			fmt.Fprintf(w, "| %s | %s | %s %s | %s |\n", r.What, short(r.Value), bound, short(r.Goal), holds)
		}
		fmt.Fprintln(w)
	}
	return nil
}

func withDatabase(address, name string) string {
	u, err := url.Parse(address)
	if err != nil {
		return address
	}
	u.Path = "/" + name
	return u.String()
}
