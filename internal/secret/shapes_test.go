package secret

import (
	"math/rand/v2"
	"regexp"
	"strings"
	"testing"
	"time"
)

// asExpressions is what the shapes say, as regular expressions.
var asExpressions = []struct {
	re   *regexp.Regexp
	with string
}{
	{regexp.MustCompile(`-----BEGIN [A-Z ]*PRIVATE KEY-----[\s\S]*?(?:-----END [A-Z ]*PRIVATE KEY-----|$)`), Mask},
	{regexp.MustCompile(`\bsk-[A-Za-z0-9_-]{20,}`), Mask},
	{regexp.MustCompile(`\bgh[pousr]_[A-Za-z0-9]{30,}`), Mask},
	{regexp.MustCompile(`\bgithub_pat_[A-Za-z0-9_]{30,}`), Mask},
	{regexp.MustCompile(`\bglpat-[A-Za-z0-9_-]{20,}`), Mask},
	{regexp.MustCompile(`\bAKIA[0-9A-Z]{16}\b`), Mask},
	{regexp.MustCompile(`\bAIza[0-9A-Za-z_-]{35}`), Mask},
	{regexp.MustCompile(`\bxox[abprs]-[A-Za-z0-9-]{10,}`), Mask},
	{regexp.MustCompile(`\bnpm_[A-Za-z0-9]{36}\b`), Mask},
	{regexp.MustCompile(`\b[0-9]{8,12}:A[A-Za-z0-9_-]{34}\b`), Mask},
	{regexp.MustCompile(`\beyJ[A-Za-z0-9_-]{10,}\.eyJ[A-Za-z0-9_-]{10,}\.[A-Za-z0-9_-]{10,}`), Mask},
	{regexp.MustCompile(`([a-z][a-z0-9+.-]*://[^\s:/@]*:)[^\s/@]{3,}@`), "${1}" + Mask + "@"},
}

func expected(forms []string, s string) string {
	var pairs []string
	for _, f := range sortForms(append([]string{}, forms...)) {
		pairs = append(pairs, f, Mask)
	}
	s = strings.NewReplacer(pairs...).Replace(s)
	for _, e := range asExpressions {
		s = e.re.ReplaceAllString(s, e.with)
	}
	return s
}

// pieces are put together at random: beginnings, middles and ends of what is
// looked for, and what may stand between.
var pieces = []string{"-----BEGIN ", "-----END ", "RSA ", "PRIVATE KEY-----", "PRIVATE KEY", "-----", "sk-", "ghp_", "gho_", "ghu_", "ghs_", "ghr_", "gh", "github_pat_",
	"glpat-", "AKIA", "AIza", "xox", "xoxb-", "npm_", ":A", "12345678", "123456789012", "1", ":", "eyJ", ".eyJ", ".", "://", "http", "a+b", "me:", "@", "/", " ", "\n", "\t", "-", "_",
	"A", "z", "9", "é", "\xff", "ABCDEFGH", "abcdefghij", "ABCDEFGHIJKLMNOP", "aB3aB3aB3aB3", strings.Repeat("x", 30), strings.Repeat("A", 34), strings.Repeat("b", 35), strings.Repeat("c", 36),
	"secret-value", "secret", "value-secret", "s3cr3t/tok"}

var testForms = []string{"secret-value", "secret", "value-secret-value", "s3cr3t/tok\"en+value==", "s3cr3t/tok", "xoxb-x"}

func TestShapesAreTheExpressions(t *testing.T) {
	rng := rand.New(rand.NewPCG(7, 11))
	r := New()
	r.exact = newValues(sortForms(append([]string{}, testForms...)))
	n := 60_000
	if testing.Short() {
		n = 10_000
	}
	hits := 0
	for range n {
		var b strings.Builder
		for range 1 + rng.IntN(12) {
			b.WriteString(pieces[rng.IntN(len(pieces))])
		}
		s := b.String()
		want := expected(testForms, s)
		if got := r.String(s); got != want {
			t.Fatalf("%q\nbecame %q\nnot    %q", s, got, want)
		}
		if want != s {
			hits++
		}
	}
	if hits < n/20 {
		t.Errorf("only %d of %d texts held anything", hits, n)
	}
}

// A text made to be slow takes no longer than another one.
func TestRedactionIsLinear(t *testing.T) {
	r := New("s3cr3t/value", "ssssssssss")
	for _, piece := range []string{"eyJ-", "eyJaaaaaaaaaaaa.", "-AIza", "AIza-AIza", "sk-", " sk-a", "-----BEGIN ", "-----END ", "-----BEGIN PRIVATE KEY-----", "a://", "://b:cc", "1", "1:A", ":A", "npm_", "sssssssss ", "xoxb-"} {
		text := strings.Repeat(piece, 2<<20/len(piece))
		begin := time.Now()
		r.String(text)
		if took := time.Since(begin); took > 5*time.Second {
			t.Errorf("2 MB of %q take %v", piece, took)
		}
	}
}

func FuzzShapes(f *testing.F) {
	for _, p := range pieces {
		f.Add(p + p)
	}
	r := New()
	r.exact = newValues(sortForms(append([]string{}, testForms...)))
	f.Fuzz(func(t *testing.T, s string) {
		if got, want := r.String(s), expected(testForms, s); got != want {
			t.Errorf("%q became %q, not %q", s, got, want)
		}
	})
}
