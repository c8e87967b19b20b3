package scripted

import (
	_ "embed"
	"errors"
	"fmt"
	"maps"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/goccy/go-yaml"
	"github.com/goccy/go-yaml/ast"
	"github.com/goccy/go-yaml/parser"
)

//go:embed demo.yaml
var demo []byte

// script is what an agent is to do, by iteration, and where sessions are
// given, by the goal. The first session whose key occurs in the goal counts,
// in the order of the file.
type script struct {
	plan
	skipPrompt bool // leave standard input unread
	sessions   []session
}

type session struct {
	key string
	plan
}

type plan struct {
	line       int
	iterations [][]step
	repeatLast bool
}

// load reads the script at path, or the demonstration.
func load(path string) (script, error) {
	if path == "" {
		return parse("the built-in script", demo)
	}
	src, err := os.ReadFile(path)
	if err != nil {
		return script{}, fmt.Errorf("read script: %w", err)
	}
	return parse(path, src)
}

// parse reads a script strictly: what it does not know is an error that names
// the line and the key.
func parse(name string, src []byte) (script, error) {
	file, err := parser.ParseBytes(src, 0)
	if err != nil {
		return script{}, fmt.Errorf("read script %s: %s", name, strings.TrimSpace(yaml.FormatError(err, false, false)))
	}
	if len(file.Docs) != 1 || file.Docs[0].Body == nil {
		return script{}, fmt.Errorf("read script %s: it is empty, or more than one document; a script has the key iterations", name)
	}
	s, err := parseScript(file.Docs[0].Body)
	if err != nil {
		return script{}, fmt.Errorf("read script %s: %w", name, err)
	}
	return s, nil
}

func parseScript(n ast.Node) (script, error) {
	var s script
	keys := planKeys(&s.plan)
	keys["name"] = func(n ast.Node) error { return value(n, new(string)) }
	keys["skip_prompt"] = func(n ast.Node) error { return value(n, &s.skipPrompt) }
	keys["sessions"] = func(n ast.Node) error {
		return eachEntry(n, func(key string, n ast.Node) error {
			one := session{key: key}
			if err := readMap(n, planKeys(&one.plan)); err != nil {
				return err
			}
			one.line = line(n)
			s.sessions = append(s.sessions, one)
			return nil
		})
	}
	if err := readMap(n, keys); err != nil {
		return s, err
	}
	s.line = line(n)
	if len(s.iterations) == 0 && len(s.sessions) == 0 {
		return s, fmt.Errorf("line %d: there are neither iterations nor sessions", s.line)
	}
	for _, one := range s.sessions {
		if len(one.iterations) == 0 {
			return s, fmt.Errorf("line %d: the session %q has no iterations", one.line, one.key)
		}
	}
	return s, nil
}

func planKeys(p *plan) map[string]func(ast.Node) error {
	return map[string]func(ast.Node) error{
		"repeat_last": func(n ast.Node) error { return value(n, &p.repeatLast) },
		"iterations": func(n ast.Node) error {
			return eachItem(n, func(n ast.Node) error {
				var steps []step
				err := eachItem(n, func(n ast.Node) error {
					st, err := parseStep(n)
					steps = append(steps, st)
					return err
				})
				p.iterations = append(p.iterations, steps)
				return err
			})
		},
	}
}

// pick gives the steps of an iteration.
func (s script) pick(goal string, iteration int) ([]step, error) {
	chosen := s.plan
	for _, one := range s.sessions {
		if strings.Contains(strings.ToLower(goal), strings.ToLower(one.key)) {
			chosen = one.plan
			break
		}
	}
	n := len(chosen.iterations)
	switch {
	case n == 0:
		return nil, fmt.Errorf("no session of the script fits the goal %.80q, and it has no iterations beside", goal)
	case iteration < 1:
		return nil, fmt.Errorf("iteration %d: iterations count from 1", iteration)
	case iteration <= n:
		return chosen.iterations[iteration-1], nil
	case chosen.repeatLast:
		return chosen.iterations[n-1], nil
	}
	return nil, fmt.Errorf("the script has %d iterations, but this is iteration %d (repeat_last: true plays the last one again)", n, iteration)
}

func line(n ast.Node) int {
	if t := n.GetToken(); t != nil && t.Position != nil {
		return t.Position.Line
	}
	return 0
}

// value reads a scalar or a free mapping.
func value(n ast.Node, into any) error {
	if err := yaml.NodeToValue(n, into, yaml.Strict()); err != nil {
		return fmt.Errorf("line %d: %s", line(n), firstLine(err))
	}
	return nil
}

func firstLine(err error) string {
	text, _, _ := strings.Cut(yaml.FormatError(err, false, false), "\n")
	return text
}

func duration(n ast.Node) (time.Duration, error) {
	var text string
	if err := value(n, &text); err != nil {
		return 0, err
	}
	d, err := time.ParseDuration(text)
	if err != nil || d < 0 {
		return 0, fmt.Errorf("line %d: %q is no duration; write it like 150ms or 2s", line(n), text)
	}
	return d, nil
}

func eachItem(n ast.Node, f func(ast.Node) error) error {
	list, ok := n.(*ast.SequenceNode)
	if !ok {
		return fmt.Errorf("line %d: a list is wanted here", line(n))
	}
	for _, item := range list.Values {
		if err := f(item); err != nil {
			return err
		}
	}
	return nil
}

// eachEntry walks a mapping in order; a key given twice is an error.
func eachEntry(n ast.Node, f func(key string, n ast.Node) error) error {
	m, ok := n.(ast.MapNode)
	if !ok {
		return fmt.Errorf("line %d: a mapping is wanted here", line(n))
	}
	seen := map[string]bool{}
	for it := m.MapRange(); it.Next(); {
		var key string
		if err := value(it.Key(), &key); err != nil {
			return err
		}
		if seen[key] {
			return fmt.Errorf("line %d: the key %q is given twice", line(it.Key()), key)
		}
		seen[key] = true
		if err := f(key, it.Value()); err != nil {
			return err
		}
	}
	return nil
}

var errUnknownKey = errors.New("unknown key")

// readMap hands every entry to the function for its key.
func readMap(n ast.Node, keys map[string]func(ast.Node) error) error {
	return eachEntry(n, func(key string, v ast.Node) error {
		f, ok := keys[key]
		if !ok {
			return fmt.Errorf("line %d: %w %q; known here: %s", line(v), errUnknownKey, key,
				strings.Join(slices.Sorted(maps.Keys(keys)), ", "))
		}
		return f(v)
	})
}
