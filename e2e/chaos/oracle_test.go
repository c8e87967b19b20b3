package chaos

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"pulseloop/bot/telegram/telegramtest"
)

// oracle is the record beside the product: one line for everything said to it and everything it delivered, appended and
// synced before anything depends on it.
type oracle struct {
	mu   sync.Mutex
	file *os.File
	dir  string
	said []said
	tags int
}

// said is one thing that somebody said.
type said struct {
	Tag  string `json:"tag,omitempty"` // occurs in the text, once in the whole run
	Kind string `json:"kind"`
	Chat int64  `json:"chat"`
	Who  string `json:"who"`
	Text string `json:"text"`
}

// newOracle keeps its file when the test fails, and says where it is.
func newOracle(t *testing.T) *oracle {
	dir, err := os.MkdirTemp("", "pulse-chaos-")
	if err != nil {
		t.Fatal(err)
	}
	o := &oracle{dir: dir}
	if o.file, err = os.OpenFile(filepath.Join(dir, "oracle.jsonl"), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = o.file.Close()
		if t.Failed() {
			t.Logf("the record of what was said and delivered: %s", o.file.Name())
			return
		}
		_ = os.RemoveAll(dir)
	})
	return o
}

func (o *oracle) write(kind string, v any) {
	o.mu.Lock()
	defer o.mu.Unlock()
	line, err := json.Marshal(map[string]any{"at": time.Now().UTC().Format(time.RFC3339Nano), "what": kind, "data": v})
	if err == nil {
		_, err = o.file.Write(append(line, '\n'))
	}
	if err == nil {
		err = o.file.Sync()
	}
	if err != nil {
		panic(fmt.Sprintf("write the oracle: %v", err)) // a test without its record proves nothing
	}
}

// tag gives a word that occurs nowhere else.
func (o *oracle) tag() string {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.tags++
	return fmt.Sprintf("tag%05dq", o.tags)
}

// say writes down what is about to be said.
func (o *oracle) say(s said) {
	o.write("said", s)
	o.mu.Lock()
	defer o.mu.Unlock()
	o.said = append(o.said, s)
}

func (o *oracle) everything() []said {
	o.mu.Lock()
	defer o.mu.Unlock()
	return append([]said(nil), o.said...)
}

// watch writes down every call of the bot that had an effect, or failed, until the server is closed.
func (o *oracle) watch(t *testing.T, tg *telegramtest.Server) {
	var wg sync.WaitGroup
	wg.Go(func() {
		seen := 0
		var open []int // calls without an outcome yet
		_ = tg.Await(t.Context(), func() bool {
			calls := tg.CallsSince(seen)
			for i := range calls {
				open = append(open, seen+i)
			}
			seen += len(calls)
			var still []int
			for _, i := range open {
				if !o.outcome(tg, i) {
					still = append(still, i)
				}
			}
			open = still
			return false
		})
	})
	t.Cleanup(wg.Wait)
}

// outcome writes one call down, if it has ended.
func (o *oracle) outcome(tg *telegramtest.Server, i int) bool {
	c := tg.CallAt(i)
	if c.Status == 0 && c.Error == "" {
		return false
	}
	switch c.Method {
	case "sendMessage", "editMessageText", "answerCallbackQuery":
		o.write("delivered", map[string]any{"method": c.Method, "chat": c.ChatID, "status": c.Status, "error": c.Error,
			"effect": c.Effect, "text": c.Params["text"]})
	}
	return true
}
