package arch

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"regexp"
	"strings"
)

// maxText: nothing larger is written by hand.
const maxText = 4 << 20

// generated lists files that tools write and that name hosts by design.
var generated = map[string]bool{"go.sum": true, "package-lock.json": true}

type leak struct {
	sign    string // every match holds it; searching for it first is what makes this quick
	pattern *regexp.Regexp
	what    string
	secret  bool // a made-up one is welcome in tests
}

var leaks = []leak{
	{":AA", regexp.MustCompile(`\b[0-9]{8,10}:[A-Za-z0-9_-]{35}\b`), "a Telegram bot token", true},
	{"sk-", regexp.MustCompile(`\bsk-(?:ant-|proj-)?[A-Za-z0-9_-]{32,}\b`), "a model provider's key", true},
	{"gh", regexp.MustCompile(`\b(?:ghp|gho|ghs)_[A-Za-z0-9]{36}\b`), "a GitHub token", true},
	{"github_pat_", regexp.MustCompile(`\bgithub_pat_[A-Za-z0-9_]{60,}\b`), "a GitHub token", true},
	{"AKIA", regexp.MustCompile(`\bAKIA[0-9A-Z]{16}\b`), "an AWS key", true},
	{"xox", regexp.MustCompile(`\bxox[abpr]-[0-9A-Za-z-]{20,}\b`), "a Slack token", true},
	{"PRIVATE KEY", regexp.MustCompile(`-----BEGIN [A-Z ]*PRIVATE KEY-----\r?\n[A-Za-z0-9+/]{40}`), "a private key", true},
	{".org", regexp.MustCompile(`\b(?:proxy|registry|deb)\.[a-z]+\.org\b`), "a registry's host; ask the tool that is configured with it", false},
}

// Texts finds secrets, registry hosts and the places of the machine (the given absolute folders) in every text file.
func Texts(root string, places ...string) ([]Finding, error) {
	var found []Finding
	err := filepath.WalkDir(root, func(name string, entry fs.DirEntry, err error) error {
		if err != nil {
			if errors.Is(err, fs.ErrNotExist) && name != root {
				return nil
			}
			return err
		}
		rel, err := filepath.Rel(root, name)
		if err != nil {
			return err
		}
		rel = filepath.ToSlash(rel)
		if entry.IsDir() {
			if ignored := rel == ".git" || rel == ".cache" || rel == ".demo" || rel == "bin" || path.Base(rel) == "node_modules"; ignored {
				return fs.SkipDir
			}
			return nil
		}
		if !entry.Type().IsRegular() || generated[path.Base(rel)] {
			return nil
		}
		more, err := readText(name, rel, places)
		found = append(found, more...)
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("read texts: %w", err)
	}
	return found, nil
}

func readText(name, rel string, places []string) ([]Finding, error) {
	data, err := os.ReadFile(name)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil || len(data) > maxText || bytes.IndexByte(data, 0) >= 0 {
		return nil, err
	}
	var found []Finding
	for _, l := range leaks {
		for _, at := range l.find(data) {
			if !l.secret || !madeUp(string(data[at[0]:at[1]])) {
				found = append(found, Finding{rel, lineOf(data, at[0]), "holds " + l.what})
			}
		}
	}
	for _, place := range places {
		if at := indexPlace(string(data), place); at >= 0 {
			found = append(found, Finding{rel, lineOf(data, at), "names a place of this machine"})
		}
	}
	return found, nil
}

// find looks at the lines that hold the sign, each with the one after it, for a key begins on its second line.
func (l leak) find(data []byte) [][2]int {
	var found [][2]int
	for from := 0; ; {
		sign := bytes.Index(data[from:], []byte(l.sign))
		if sign < 0 {
			return found
		}
		start := from + bytes.LastIndexByte(data[from:from+sign], '\n') + 1
		end := lineEnd(data, from+sign)
		window := data[start:lineEnd(data, min(end+1, len(data)))]
		for _, at := range l.pattern.FindAllIndex(window, -1) {
			if start+at[0] <= end { // the next line has its own turn
				found = append(found, [2]int{start + at[0], start + at[1]})
			}
		}
		from = end
	}
}

func lineEnd(data []byte, from int) int {
	if n := bytes.IndexByte(data[from:], '\n'); n >= 0 {
		return from + n
	}
	return len(data)
}

func lineOf(data []byte, at int) int { return bytes.Count(data[:at], []byte("\n")) + 1 }

// indexPlace finds the folder as a whole: /src/app is not in /src/app-two.
func indexPlace(text, place string) int {
	for from := 0; ; {
		at := strings.Index(text[from:], place)
		if at < 0 {
			return -1
		}
		at += from
		end := at + len(place)
		if end == len(text) || !strings.ContainsRune("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-_.", rune(text[end])) {
			return at
		}
		from = end
	}
}

// madeUp recognises the secrets of tests and documents: they say so, count up, or repeat themselves.
func madeUp(secret string) bool {
	lower := strings.ToLower(secret)
	for _, sign := range []string{"test", "fake", "example", "secret", "dummy", "123456", "abcdef"} {
		if strings.Contains(lower, sign) {
			return true
		}
	}
	letters := map[rune]bool{}
	for _, r := range secret {
		letters[r] = true
	}
	return len(letters) < 12
}
