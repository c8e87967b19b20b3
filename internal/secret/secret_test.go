package secret_test

import (
	"encoding/base64"
	"encoding/json"
	"fmt"
	"log/slog"
	"net/url"
	"strings"
	"testing"

	"pulseloop/internal/secret"
)

const token = "s3cr3t/tok\"en+value=="

func TestValueNeverPrints(t *testing.T) {
	v := secret.Value(token)
	j, _ := json.Marshal(map[string]any{"v": v})
	var b strings.Builder
	slog.New(slog.NewTextHandler(&b, nil)).Info("x", "v", v)
	for _, s := range []string{fmt.Sprint(v), fmt.Sprintf("%#v %+v %s %q", v, v, v, v), string(j), b.String()} {
		if strings.Contains(s, "s3cr3t") || !strings.Contains(s, secret.Mask) {
			t.Errorf("printed %s", s)
		}
	}
	if v.Reveal() != token {
		t.Error("Reveal does not give the value")
	}
}

func TestRedact(t *testing.T) {
	r := secret.New(token, "", "ab")
	quoted, _ := json.Marshal(token)
	for _, s := range []string{token, url.QueryEscape(token), string(quoted), base64.StdEncoding.EncodeToString([]byte(token)),
		fmt.Sprintf("%x", token), "ghp_" + strings.Repeat("a", 36), "sk-ant-" + strings.Repeat("x", 40),
		"AKIA" + strings.Repeat("A", 16), "123456789:A" + strings.Repeat("b", 34),
		"-----BEGIN RSA PRIVATE KEY-----\nabc\n-----END RSA PRIVATE KEY-----"} {
		got := r.String("before " + s + " after")
		if !strings.Contains(got, secret.Mask) || strings.Contains(got, s) || !strings.HasPrefix(got, "before ") || !strings.HasSuffix(got, " after") {
			t.Errorf("%q became %q", s, got)
		}
	}
	if got := r.String("postgres://me:hunter2@db/x"); got != "postgres://me:"+secret.Mask+"@db/x" {
		t.Errorf("url became %q", got)
	}
	for _, s := range []string{"", "ab", "a plain sentence about sk-learn and https://example.com:8080/x@y", "task-list gh_pages"} {
		if got := r.String(s); got != s {
			t.Errorf("%q became %q", s, got)
		}
	}
}

func TestStreamCatchesSecretsAcrossPieces(t *testing.T) {
	key := "sk-ant-" + strings.Repeat("Zz9", 20)
	text := strings.Repeat("word ", 200) + token + " middle " + key + strings.Repeat(" end", 300) + " über " + token
	want := secret.New(token).String(text)
	for size := 1; size < 200; size += 7 {
		s := secret.New(token).Stream()
		var b strings.Builder
		for i := 0; i < len(text); i += size {
			b.WriteString(s.Next(text[i:min(i+size, len(text))]))
		}
		b.WriteString(s.Rest())
		if b.String() != want {
			t.Fatalf("pieces of %d: got %q", size, b.String())
		}
	}
}
