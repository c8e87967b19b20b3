package packaging

import (
	"encoding/json"
	"fmt"
	"os"
	"regexp"
	"strings"
	"testing"
)

// instruction is one line of a Dockerfile, continuations joined.
type instruction struct {
	name  string
	flags map[string]string
	args  string
}

// stage is what one FROM begins.
type stage struct {
	base  string
	name  string
	steps []instruction
}

var knownInstructions = map[string]bool{"FROM": true, "ARG": true, "ENV": true, "RUN": true, "COPY": true, "USER": true,
	"WORKDIR": true, "VOLUME": true, "EXPOSE": true, "HEALTHCHECK": true, "ENTRYPOINT": true, "CMD": true}

// parseDockerfile reads the subset that ours uses, and refuses what it does not know: an instruction passed over would
// be one that the test does not show.
func parseDockerfile(text string) ([]stage, error) {
	var stages []stage
	for _, line := range logicalLines(text) {
		name, rest, _ := strings.Cut(line, " ")
		step := instruction{name: strings.ToUpper(name), flags: map[string]string{}, args: strings.TrimSpace(rest)}
		for strings.HasPrefix(step.args, "--") {
			flag, rest, _ := strings.Cut(step.args, " ")
			key, value, _ := strings.Cut(strings.TrimPrefix(flag, "--"), "=")
			step.flags[key], step.args = value, strings.TrimSpace(rest)
		}
		switch {
		case !knownInstructions[step.name]:
			return nil, fmt.Errorf("unknown instruction %s", step.name)
		case step.name == "FROM":
			words := strings.Fields(step.args)
			s := stage{base: words[0]}
			if len(words) == 3 && strings.EqualFold(words[1], "as") {
				s.name = words[2]
			}
			stages = append(stages, s)
		case len(stages) == 0:
			return nil, fmt.Errorf("%s before FROM", step.name)
		default:
			last := &stages[len(stages)-1]
			last.steps = append(last.steps, step)
		}
	}
	return stages, nil
}

func logicalLines(text string) []string {
	var lines []string
	current := ""
	for line := range strings.Lines(text) {
		line = strings.TrimRight(line, "\r\n")
		if strings.HasPrefix(strings.TrimSpace(line), "#") || (current == "" && strings.TrimSpace(line) == "") {
			continue
		}
		if head, ok := strings.CutSuffix(line, "\\"); ok {
			current += head
			continue
		}
		lines = append(lines, current+line)
		current = ""
	}
	return lines
}

// last returns the last instruction of a kind: the one that counts.
func (s stage) last(name string) (instruction, bool) {
	for i := len(s.steps) - 1; i >= 0; i-- {
		if s.steps[i].name == name {
			return s.steps[i], true
		}
	}
	return instruction{}, false
}

// words reads the exec form, `["a", "b"]`.
func (i instruction) words() ([]string, error) {
	var words []string
	if err := json.Unmarshal([]byte(i.args), &words); err != nil {
		return nil, fmt.Errorf("%s %s is not in the exec form: %w", i.name, i.args, err)
	}
	return words, nil
}

func readStages(t *testing.T) []stage {
	t.Helper()
	text, err := os.ReadFile("../Dockerfile")
	if err != nil {
		t.Fatal(err)
	}
	stages, err := parseDockerfile(string(text))
	if err != nil {
		t.Fatal(err)
	}
	return stages
}

func TestDockerfileEndsInASmallImageWithoutRoot(t *testing.T) {
	stages := readStages(t)
	if len(stages) < 2 {
		t.Fatalf("%d stages, want a build stage and a final one", len(stages))
	}
	final := stages[len(stages)-1]
	if strings.HasPrefix(final.base, "golang") {
		t.Errorf("the final stage is built on %s: a compiler has no place there", final.base)
	}
	user, _ := final.last("USER")
	if !regexp.MustCompile(`^[1-9][0-9]*(:[1-9][0-9]*)?$`).MatchString(user.args) {
		t.Errorf("USER %q, want a number other than 0", user.args)
	}
	entry, _ := final.last("ENTRYPOINT")
	if words, err := entry.words(); err != nil || len(words) != 1 || words[0] != "pulse" {
		t.Errorf("ENTRYPOINT %s, %v; want [\"pulse\"]", entry.args, err)
	}
	if _, ok := final.last("HEALTHCHECK"); !ok {
		t.Error("no HEALTHCHECK")
	}
	for _, step := range final.steps {
		if step.name == "ENV" && regexp.MustCompile(`(?i)token|password|secret|_key`).MatchString(step.args) {
			t.Errorf("ENV %s: a secret must not be part of an image", step.args)
		}
	}
}

func TestDockerfileBuildsWithTheGoOfTheModule(t *testing.T) {
	module, err := os.ReadFile("../go.mod")
	if err != nil {
		t.Fatal(err)
	}
	m := regexp.MustCompile(`(?m)^go (\d+\.\d+)`).FindSubmatch(module)
	if m == nil {
		t.Fatal("go.mod names no Go version")
	}
	build := readStages(t)[0]
	if want := "golang:" + string(m[1]) + "-bookworm"; build.base != want {
		t.Errorf("built in %s, want %s", build.base, want)
	}
	for _, step := range build.steps {
		if step.name == "RUN" && strings.Contains(step.args, "go build") && !strings.Contains(step.args, "CGO_ENABLED=0") {
			t.Errorf("RUN %s: with cgo the binary depends on the libraries of the build stage", step.args)
		}
	}
}

func TestParseDockerfileRefusesWhatItDoesNotKnow(t *testing.T) {
	for name, text := range map[string]string{
		"an unknown instruction": "FROM a\nADD http://example.com /\n",
		"a step without a stage": "RUN true\n",
	} {
		t.Run(name, func(t *testing.T) {
			if _, err := parseDockerfile(text); err == nil {
				t.Error("accepted")
			}
		})
	}
}

func TestParseDockerfileJoinsLinesAndReadsFlags(t *testing.T) {
	stages, err := parseDockerfile("# c\nFROM a AS b\n\nRUN one \\\n# c\n && two\nCOPY --from=x --chmod=0755 y z\n")
	if err != nil {
		t.Fatal(err)
	}
	want := "[{a b [{RUN map[] one  && two} {COPY map[chmod:0755 from:x] y z}]}]"
	if got := fmt.Sprint(stages); got != want {
		t.Errorf("parsed %s, want %s", got, want)
	}
}
