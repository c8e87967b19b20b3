package arch_test

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"pulseloop/internal/arch"
)

const root = "../.."

// places are the folders of the machine that no file may name. `make check` gives them: whoever only runs the tests may
// have cloned to a place that a document happens to take as its example.
func places() []string {
	return strings.FieldsFunc(os.Getenv("PULSE_CHECK_PLACES"), func(r rune) bool { return r == ':' })
}

func TestTheProjectKeepsItsRules(t *testing.T) {
	for name, check := range map[string]func(string) ([]arch.Finding, error){
		"layers":  arch.Layers,
		"sizes":   arch.Sizes,
		"names":   arch.Names,
		"calls":   arch.Calls,
		"modules": arch.Modules,
		"texts":   func(root string) ([]arch.Finding, error) { return arch.Texts(root, places()...) },
	} {
		t.Run(name, func(t *testing.T) {
			found, err := check(root)
			if err != nil {
				t.Fatal(err)
			}
			for _, f := range found {
				t.Error(f)
			}
		})
	}
}

// Nothing can be found wrong where nothing is read.
func TestLoadReadsTheProject(t *testing.T) {
	tree, err := arch.Load(root)
	if err != nil {
		t.Fatal(err)
	}
	if tree.Module != "pulseloop" {
		t.Errorf("module %q", tree.Module)
	}
	seen := map[string]bool{}
	for _, p := range tree.Packages {
		seen[p.Dir] = true
	}
	for _, dir := range []string{"pulse", "internal/arch", "scripts/suite"} {
		if !seen[dir] {
			t.Errorf("package %s was not read", dir)
		}
	}
	if seen["tools"] {
		t.Error("tools is a module of its own, but was read")
	}
}

const header = "| package | may import | libraries | what |\n|---|---|---|---|\n"

// tree writes files, on top of a module with a table that allows a little.
func tree(t *testing.T, files map[string]string) string {
	t.Helper()
	dir := t.TempDir()
	all := map[string]string{
		"go.mod": "module m\n\ngo 1.26\n",
		"docs/architecture.md": header + "| `pulse` | | | |\n| `loop` | `pulse` | `good.org/lib` | |\n" +
			"| `db`, `bot`, `bot/*` | `pulse` | | |\n| `internal/*` | `internal/*` | | |\n| `cmd/*` | `...` | `...` | |\n| `scripts/*` | | | |\n| `util` | | | |\n",
		"pulse/pulse.go":            "package pulse\n",
		"loop/loop.go":              "package loop\n\nimport (\n\t_ \"good.org/lib/sub\"\n\t_ \"m/pulse\"\n)\n",
		"loop/loop_test.go":         "package loop_test\n\nimport (\n\t_ \"any.org/lib\"\n\t_ \"m/loop\"\n\t_ \"m/loop/looptest\"\n\t_ \"testing\"\n)\n",
		"loop/looptest/store.go":    "package looptest\n\nimport (\n\t_ \"m/loop\"\n\t_ \"testing\"\n)\n",
		"internal/proc/proc.go":     "package proc\n\nimport \"os/exec\"\n\nvar _ = exec.Command\n",
		"cmd/pulse/main.go":         "package main\n\nimport (\n\t\"os/exec\"\n\n\t_ \"m/loop\"\n)\n\nvar _ = exec.LookPath\n",
		"scripts/tool/main.go":      "package main\n\nimport \"os/exec\"\n\nvar _ = exec.Command\n",
		"loop/testdata/broken.go":   "not Go",
		"tools/go.mod":              "module m/tools\n",
		"tools/util/util.go":        "package util\n",
		".cache/util/util.go":       "package util\n",
		"internal/proc/run_test.go": "package proc\n\nimport \"os/exec\"\n\nvar _ = exec.Command\n",
	}
	for name, text := range files {
		all[name] = text
	}
	for name, text := range all {
		file := filepath.Join(dir, filepath.FromSlash(name))
		if err := os.MkdirAll(filepath.Dir(file), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(file, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	return dir
}

type breach struct {
	file string // where the finding must be; "" means that nothing may be found
	want string // a part of what it says
	text map[string]string
}

func run(t *testing.T, check func(string) ([]arch.Finding, error), cases map[string]breach) {
	t.Helper()
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			found, err := check(tree(t, c.text))
			if err != nil {
				t.Fatal(err)
			}
			if c.file == "" {
				if len(found) > 0 {
					t.Errorf("found %v in a tree that keeps the rules", found)
				}
				return
			}
			if len(found) != 1 || found[0].Path != c.file || !strings.Contains(found[0].What, c.want) {
				t.Errorf("found %v, want one in %s about %q", found, c.file, c.want)
			}
		})
	}
}

func file(name, text string) map[string]string { return map[string]string{name: text} }

func TestLayersFindsForbiddenImports(t *testing.T) {
	run(t, arch.Layers, map[string]breach{
		"a good tree":               {},
		"policy knows a technology": {"loop/bad.go", "must not import db", file("loop/bad.go", "package loop\n\nimport _ \"m/db\"\n")},
		"technology knows another":  {"bot/sms/sms.go", "must not import db", file("bot/sms/sms.go", "package sms\n\nimport _ \"m/db\"\n")},
		"the words know policy":     {"pulse/bad.go", "must not import loop", file("pulse/bad.go", "package pulse\n\nimport _ \"m/loop\"\n")},
		"the words use a library":   {"pulse/bad.go", "library good.org/lib", file("pulse/bad.go", "package pulse\n\nimport _ \"good.org/lib\"\n")},
		"an unlisted library":       {"loop/bad.go", "library evil.org/lib", file("loop/bad.go", "package loop\n\nimport _ \"evil.org/lib\"\n")},
		"a library with a longer name": {"loop/bad.go", "library good.org/library",
			file("loop/bad.go", "package loop\n\nimport _ \"good.org/library\"\n")},
		"a test knows a technology": {"loop/bad_test.go", "must not import db", file("loop/bad_test.go", "package loop\n\nimport _ \"m/db\"\n")},
		"the product uses a fake":   {"loop/bad.go", "must not import loop/looptest", file("loop/bad.go", "package loop\n\nimport _ \"m/loop/looptest\"\n")},
		"a test knows what is below": {"", "", map[string]string{"bot/sms/sms.go": "package sms\n",
			"bot/bot_test.go": "package bot_test\n\nimport _ \"m/bot/sms\"\n"}},
		"a test knows what is above": {"", "", map[string]string{"bot/bot.go": "package bot\n",
			"bot/sms/sms_test.go": "package sms_test\n\nimport _ \"m/bot\"\n"}},
		"a fake beyond its parent": {"loop/looptest/bad.go", "must not import db", file("loop/looptest/bad.go", "package looptest\n\nimport _ \"m/db\"\n")},
		"a package without a row":  {"stray", "no row", file("stray/stray.go", "package stray\n")},
		"a deeper package":         {"bot/sms/deep", "no row", file("bot/sms/deep/deep.go", "package deep\n")},
	})
}

func TestLayersWantsATable(t *testing.T) {
	dir := tree(t, file("docs/architecture.md", "# Nothing\n"))
	if _, err := arch.Layers(dir); err == nil {
		t.Error("a page without a table was accepted")
	}
}

func lines(n int, line string) string { return strings.Repeat(line+"\n", n) }

func TestSizesFindsWhatOutgrewTheBudget(t *testing.T) {
	long := func(n int) string { return "package loop\n\nfunc f() {\n" + lines(n-2, "\t_ = 1") + "}\n" }
	big := func(pkg string, files, each int) map[string]string {
		out := map[string]string{}
		for i := range files {
			out[fmt.Sprintf("%s/f%d.go", pkg, i)] = "package " + pkg + "\n" + lines(each-1, "//")
		}
		return out
	}
	run(t, arch.Sizes, map[string]breach{
		"at the limits":     {"", "", map[string]string{"loop/a.go": "package loop\n" + lines(599, "//"), "loop/a_test.go": "package loop\n" + lines(999, "//"), "loop/f.go": long(100)}},
		"a long file":       {"loop/a.go", "601 lines", file("loop/a.go", "package loop\n"+lines(600, "//"))},
		"a long test":       {"loop/a_test.go", "1001 lines", file("loop/a_test.go", "package loop\n"+lines(1000, "//"))},
		"a long function":   {"loop/a.go", "101 lines", file("loop/a.go", long(101))},
		"a large package":   {"loop", "at most 4000", big("loop", 8, 500)},
		"a wide interface":  {"loop/a.go", "8 methods", file("loop/a.go", "package loop\n\ntype I interface {\n"+"\tA()\n\tB()\n\tC()\n\tD()\n\tE()\n\tF()\n\tG()\n\tH()\n}\n")},
		"a composed one":    {"loop/a.go", "8 methods", file("loop/a.go", "package loop\n\ntype (\n\tI interface { J; K }\n\tJ interface { A(); B(); C(); D() }\n\tK interface { E(); F(); G(); H() }\n)\n")},
		"a narrow one":      {"", "", file("loop/a.go", "package loop\n\ntype I interface {\n\tA()\n\tB()\n\tC()\n\tD()\n\tE()\n\tF()\n\tG()\n}\n")},
		"db has more room":  {"", "", big("db", 9, 500)},
		"a type constraint": {"", "", file("loop/a.go", "package loop\n\ntype I interface { ~int | ~string }\n")},
	})
}

func TestNamesFindsVagueOnes(t *testing.T) {
	run(t, arch.Names, map[string]breach{
		"a good tree": {},
		"an engine":   {"loop/a.go", "Engine", file("loop/a.go", "package loop\n\ntype Engine struct{}\n")},
		"a manager":   {"loop/a.go", "sessionManager", file("loop/a.go", "package loop\n\ntype sessionManager struct{}\n")},
		"a service":   {"loop/a.go", "service", file("loop/a.go", "package loop\n\ntype service int\n")},
		"a helper":    {"loop/a_test.go", "Helper", file("loop/a_test.go", "package loop\n\nfunc f() { type Helper int }\n")},
		"a package":   {"util", "util", file("util/a.go", "package util\n")},
		"its name":    {"loop", "common", map[string]string{"loop/loop.go": "package common\n", "loop/loop_test.go": "package common_test\n"}},
	})
}

func TestCallsFindsWhatHasNoPlace(t *testing.T) {
	source := func(pkg, importPath, use string) string {
		return "package " + pkg + "\n\nimport x \"" + importPath + "\"\n\nvar _ = x." + use + "\n"
	}
	bubble := func(text string) string {
		return "package loop\n\nimport (\n\t\"testing\"\n\ts \"testing/synctest\"\n\t\"time\"\n)\n\n" + text + "\n"
	}
	run(t, arch.Calls, map[string]breach{
		"a good tree":          {},
		"a child":              {"loop/a.go", "internal/proc", file("loop/a.go", source("loop", "os/exec", "Command"))},
		"a child in cmd":       {"cmd/pulse/a.go", "internal/proc", file("cmd/pulse/a.go", source("main", "os/exec", "CommandContext"))},
		"a fork":               {"loop/a.go", "internal/proc", file("loop/a.go", source("loop", "syscall", "ForkExec"))},
		"a started process":    {"loop/a.go", "internal/proc", file("loop/a.go", source("loop", "os", "StartProcess"))},
		"a hidden child":       {"loop/a.go", "internal/proc", file("loop/a.go", "package loop\n\nimport . \"os/exec\"\n\nvar _ = Command\n")},
		"prompts as pages":     {"loop/a.go", "html/template", file("loop/a.go", source("loop", "html/template", "New"))},
		"testing in product":   {"loop/a.go", "testing", file("loop/a.go", source("loop", "testing", "Short"))},
		"a sleep in a test":    {"loop/a_test.go", "poll", file("loop/a_test.go", source("loop", "time", "Sleep"))},
		"a sleep elsewhere":    {"", "", file("loop/a.go", source("loop", "time", "Sleep"))},
		"a sleep in a bubble":  {"", "", file("loop/a_test.go", bubble("func TestA(t *testing.T) { s.Test(t, func(t *testing.T) { time.Sleep(1) }) }"))},
		"a sleep beside it":    {"loop/a_test.go", "poll", file("loop/a_test.go", bubble("func TestA(t *testing.T) { s.Test(t, nil); time.Sleep(1) }"))},
		"a sleep for a bubble": {"", "", file("loop/a_test.go", bubble("func TestA(t *testing.T) { s.Test(t, f) }\n\nfunc f(t *testing.T) { time.Sleep(1) }"))},
		"another Sleep":        {"", "", file("loop/a_test.go", source("loop", "m/pulse", "Sleep"))},
		"registration":         {"loop/a.go", "init", file("loop/a.go", "package loop\n\nfunc init() {}\n")},
		"a method named init":  {"", "", file("loop/a.go", "package loop\n\ntype T int\n\nfunc (T) init() {}\n")},
	})
}

func TestTextsFindsSecretsHostsAndPlaces(t *testing.T) {
	check := func(root string) ([]arch.Finding, error) { return arch.Texts(root, "/srv/checkout") }
	random := "qWxP7vKz9RtYb2NmLc4HgFd6SjA" // in pieces, so that this file is not a finding itself
	run(t, check, map[string]breach{
		"a good tree":       {},
		"a bot token":       {"a.md", "Telegram", file("a.md", "7481920563:"+"AA"+random+"_eUoI3")},
		"a model key":       {"testdata/a.txt", "model provider", file("testdata/a.txt", "sk-"+"ant-"+random+random)},
		"a GitHub token":    {".ci/run", "GitHub", file(".ci/run", "ghp"+"_"+random+"kQwErTyUi")},
		"a private key":     {"a.pem", "private key", file("a.pem", "-----BEGIN "+"PRIVATE KEY-----\n"+random+random+"\n")},
		"the second of two": {"a.md", "Telegram", file("a.md", "a :AA\n\n:AA 7481920563:"+"AA"+random+"_eUoI3 :AA\n:AA")},
		"a made-up token":   {"", "", file("a_test.go", "package a // "+"123456789:"+"AAtesttesttesttesttesttesttesttestt")},
		"a host":            {"Makefile", "registry's host", file("Makefile", "GOPROXY=https://proxy."+"golang.org\n")},
		"a host in sums":    {"", "", file("go.sum", "https://proxy."+"golang.org\n")},
		"a place":           {"a.md", "place of this machine", file("a.md", "see /srv/checkout/a.md")},
		"a longer name":     {"", "", file("a.md", "see /srv/checkout-two")},
		"an ignored file":   {"", "", file(".cache/a.md", "see /srv/checkout/a.md")},
	})
}

func TestModulesWantsAReasonForEachLibrary(t *testing.T) {
	const page = "| module | used by | why | licence |\n|---|---|---|---|\n| `good.org/lib` (with `part`) | `loop` | it is good | MIT |\n"
	const needs = "module m\n\ngo 1.26\n\nrequire good.org/lib v1.0.0\n\nrequire (\n\tgood.org/lib/part v1.0.0\n\tdeep.org/lib v1.0.0 // indirect\n"
	run(t, arch.Modules, map[string]breach{
		"all explained": {"", "", map[string]string{"docs/dependencies.md": page, "go.mod": needs + ")\n"}},
		"one is not": {"go.mod", "new.org/lib is not explained", map[string]string{"docs/dependencies.md": page,
			"go.mod": needs + "\tnew.org/lib v1.0.0\n)\n"}},
		"one is gone": {"docs/dependencies.md", "good.org/lib is explained", map[string]string{"docs/dependencies.md": page}},
	})
}
