package secret

import (
	"math/rand/v2"
	"strings"
	"testing"
)

// plainStream is Stream without a memory of what it has looked at.
type plainStream struct {
	r    *Redactor
	held string
}

func (s *plainStream) next(piece string) string {
	s.held += piece
	cut := len(s.held) - max(s.r.exact.longest, shape)
	if begin := strings.LastIndex(s.held, keyBegin); begin >= 0 && !strings.Contains(s.held[begin:], keyEnd) && len(s.held) < maxHeld {
		cut = min(cut, begin)
	}
	i := (&Stream{r: s.r, held: s.held, key: -1}).border(cut)
	out := s.r.String(s.held[:i])
	s.held = s.held[i:]
	return out
}

func TestStreamForgetsNothingThatMatters(t *testing.T) {
	rng := rand.New(rand.NewPCG(3, 5))
	r := New()
	r.exact = newValues(sortForms(append([]string{"a value with spaces"}, testForms...)))
	words := append([]string{"a value with spaces", "a value", " with spaces", strings.Repeat("word ", 80), strings.Repeat("x", 300), "-----BEGIN RSA PRIVATE KEY-----\n", "-----END RSA PRIVATE KEY-----\n", keyBegin[:5], keyBegin[5:]}, pieces...)
	for range 400 {
		s, plain := r.Stream(), &plainStream{r: r}
		for range 200 {
			piece := words[rng.IntN(len(words))]
			if rng.IntN(500) == 0 {
				piece = strings.Repeat("long ", maxHeld/5)
			}
			if got, want := s.Next(piece), plain.next(piece); got != want {
				t.Fatalf("after %q:\n%q\nnot\n%q", s.held, got, want)
			}
		}
		if got, want := s.Rest(), r.String(plain.held); got != want {
			t.Fatalf("rest %q, not %q", got, want)
		}
	}
}
