package scripted

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/goccy/go-yaml/ast"
)

// step is one thing to do: exactly one of the verbs below, and perhaps a
// condition.
type step struct {
	line int
	verb string
	when string // play it only if the prompt contains this

	text   string        // say, think, note, run, raw, signal, stderr
	pieces []string      // chunks
	file   file          // write, append
	tool   fakeTool      // tool
	wait   time.Duration // sleep, spin
	code   int           // crash
	flood  flood
	orphan orphan
	hint   hint
	fail   failure
	usage  usage
}

type file struct{ Path, Content string }

type hint struct{ TurnID, Reason string }

type failure struct{ Error, Hint string }

type orphan struct{ KeepStdout bool }

type flood struct {
	Bytes, Lines int64
	Stderr       bool
	JSON         bool // bytes: as one block of text, in a line of JSON
}

type fakeTool struct {
	Name   string
	Input  json.RawMessage
	Output string
	Failed bool
	Wait   time.Duration
}

// verbs reads the argument of each verb into the step.
func (s *step) verbs() map[string]func(ast.Node) error {
	text := func(n ast.Node) error { return value(n, &s.text) }
	path := func(n ast.Node) error {
		return readMap(n, map[string]func(ast.Node) error{
			"path":    func(n ast.Node) error { return value(n, &s.file.Path) },
			"content": func(n ast.Node) error { return value(n, &s.file.Content) },
		})
	}
	return map[string]func(ast.Node) error{
		"say": text, "think": text, "note": text, "run": text, "raw": text, "signal": text, "stderr": text,
		"chunks": func(n ast.Node) error { return value(n, &s.pieces) },
		"write":  path, "append": path,
		"tool":  s.readTool,
		"sleep": func(n ast.Node) (err error) { s.wait, err = duration(n); return err },
		"spin":  func(n ast.Node) (err error) { s.wait, err = duration(n); return err },
		"hang":  isTrue, "ignore_sigterm": isTrue, "close_stdout": isTrue, "result": isTrue,
		"crash": func(n ast.Node) error {
			return readMap(n, map[string]func(ast.Node) error{"code": func(n ast.Node) error { return value(n, &s.code) }})
		},
		"flood":        s.readFlood,
		"spawn_orphan": s.readOrphan,
		"hint": func(n ast.Node) error {
			return readMap(n, map[string]func(ast.Node) error{
				"turn_id": func(n ast.Node) error { return value(n, &s.hint.TurnID) },
				"reason":  func(n ast.Node) error { return value(n, &s.hint.Reason) },
			})
		},
		"fail": func(n ast.Node) error {
			return readMap(n, map[string]func(ast.Node) error{
				"error": func(n ast.Node) error { return value(n, &s.fail.Error) },
				"hint":  func(n ast.Node) error { return value(n, &s.fail.Hint) },
			})
		},
		"usage": func(n ast.Node) error { return value(n, &s.usage) },
	}
}

func parseStep(n ast.Node) (step, error) {
	s := step{line: line(n)}
	verbs := s.verbs()
	keys := maps.Clone(verbs)
	keys["when_prompt_contains"] = func(n ast.Node) error { return value(n, &s.when) }
	for verb, read := range verbs {
		keys[verb] = func(n ast.Node) error {
			if s.verb != "" {
				return fmt.Errorf("line %d: a step does one thing, this one has both %s and %s", line(n), s.verb, verb)
			}
			s.verb, s.line = verb, line(n)
			return read(n)
		}
	}
	if err := readMap(n, keys); err != nil {
		return s, err
	}
	if s.verb == "" {
		return s, fmt.Errorf("line %d: the step does nothing; it needs one of %s", s.line, strings.Join(slices.Sorted(maps.Keys(verbs)), ", "))
	}
	return s, s.check()
}

// check refuses what has the right form but cannot be meant.
func (s *step) check() error {
	problem := ""
	switch s.verb {
	case "write", "append":
		if s.file.Path == "" {
			problem = "path is missing"
		}
	case "tool":
		if s.tool.Name == "" {
			problem = "name is missing"
		}
	case "flood":
		if (s.flood.Bytes > 0) == (s.flood.Lines > 0) {
			problem = "exactly one of bytes and lines is wanted"
		} else if s.flood.JSON && (s.flood.Lines > 0 || s.flood.Stderr) {
			problem = "json is for bytes on standard output"
		}
	case "fail":
		if s.fail.Error == "" {
			problem = "error is missing"
		}
	case "hint":
		if s.hint.TurnID == "" {
			problem = "turn_id is missing"
		}
	case "say", "run", "signal":
		if s.text == "" {
			problem = "the text is missing"
		}
	case "crash":
		if s.code < 0 || s.code > 255 {
			problem = "code must be between 0 and 255"
		}
	}
	if problem != "" {
		return fmt.Errorf("line %d: %s: %s", s.line, s.verb, problem)
	}
	return nil
}

func isTrue(n ast.Node) error {
	var on bool
	if err := value(n, &on); err != nil {
		return err
	}
	if !on {
		return fmt.Errorf("line %d: only true makes sense here; leave the step out instead", line(n))
	}
	return nil
}

func (s *step) readTool(n ast.Node) error {
	return readMap(n, map[string]func(ast.Node) error{
		"name":   func(n ast.Node) error { return value(n, &s.tool.Name) },
		"output": func(n ast.Node) error { return value(n, &s.tool.Output) },
		"failed": func(n ast.Node) error { return value(n, &s.tool.Failed) },
		"wait":   func(n ast.Node) (err error) { s.tool.Wait, err = duration(n); return err },
		"input": func(n ast.Node) error {
			input := map[string]any{}
			if err := value(n, &input); err != nil {
				return err
			}
			raw, err := json.Marshal(input)
			if err != nil {
				return fmt.Errorf("line %d: input: %w", line(n), err)
			}
			s.tool.Input = raw
			return nil
		},
	})
}

func (s *step) readFlood(n ast.Node) error {
	return readMap(n, map[string]func(ast.Node) error{
		"bytes":  func(n ast.Node) error { return value(n, &s.flood.Bytes) },
		"lines":  func(n ast.Node) error { return value(n, &s.flood.Lines) },
		"stderr": func(n ast.Node) error { return value(n, &s.flood.Stderr) },
		"json":   func(n ast.Node) error { return value(n, &s.flood.JSON) },
	})
}

// readOrphan takes true, or a mapping with more to say.
func (s *step) readOrphan(n ast.Node) error {
	if _, ok := n.(ast.MapNode); !ok {
		return isTrue(n)
	}
	return readMap(n, map[string]func(ast.Node) error{
		"keep_stdout": func(n ast.Node) error { return value(n, &s.orphan.KeepStdout) },
	})
}
