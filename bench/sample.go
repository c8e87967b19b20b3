package main

import (
	"encoding/json"
	"fmt"
	"math"
	"os"
	"slices"
	"time"
)

// sample is what one contender measured in one round.
type sample map[string]float64

func (s sample) print() error {
	if err := json.NewEncoder(os.Stdout).Encode(s); err != nil {
		return fmt.Errorf("print sample: %w", err)
	}
	return nil
}

// rate is n operations in the time since begin, a second.
func rate(n int, begin time.Time) float64 { return float64(n) / time.Since(begin).Seconds() }

// millis gives the usual figures of latencies, in milliseconds.
func millis(all []time.Duration) sample {
	slices.Sort(all)
	ms := func(d time.Duration) float64 { return float64(d.Microseconds()) / 1000 }
	return sample{"p50 ms": ms(quantile(all, 0.50)), "p99 ms": ms(quantile(all, 0.99)), "max ms": ms(all[len(all)-1]), "n": float64(len(all))}
}

// quantile wants a sorted list.
func quantile(all []time.Duration, q float64) time.Duration {
	return all[int(math.Ceil(q*float64(len(all))))-1]
}

func median(all []float64) float64 {
	all = slices.Sorted(slices.Values(all))
	n := len(all)
	if n == 0 {
		return math.NaN()
	}
	if n%2 == 1 {
		return all[n/2]
	}
	return (all[n/2-1] + all[n/2]) / 2
}
