package modeltest

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"reflect"
	"strings"
	"testing"
	"time"
)

func anthropicHeader() http.Header {
	return http.Header{"X-Api-Key": {StubKey}, "Anthropic-Version": {"2023-06-01"}}
}

// ask builds a Messages request from the conversation so far.
func ask(messages ...any) obj {
	return obj{
		"model": "claude-test", "max_tokens": 1000, "stream": true, "system": []any{obj{"type": "text", "text": "You are careful."}},
		"tools": []any{obj{"name": "Write"}, obj{"name": "Bash"}}, "messages": messages,
	}
}

func user(text string) obj { return obj{"role": "user", "content": text} }

func toolRound(ids ...string) []any {
	var calls, results []any
	for _, id := range ids {
		calls = append(calls, obj{"type": "tool_use", "id": id, "name": "Write", "input": obj{}})
		results = append(results, obj{"type": "tool_result", "tool_use_id": id, "content": []any{obj{"type": "text", "text": "ok " + id}}})
	}
	return []any{obj{"role": "assistant", "content": calls}, obj{"role": "user", "content": results}}
}

func postMessages(t *testing.T, s *Server, body any) reply {
	t.Helper()
	return post(t, soon(t), s.URL+"/v1/messages?beta=true", body, anthropicHeader())
}

func TestAnthropicStreamsThoughtTextAndToolCall(t *testing.T) {
	s := start(t, Anthropic, Turns([]Step{Think("hmm, so"), Say("writing"), Tool("Write", obj{"file_path": "/repo/a"})})...)
	evs := postMessages(t, s, ask(user("add a"))).events(t)
	want := []string{
		"message_start",
		"content_block_start", "content_block_delta", "content_block_delta", "content_block_delta", "content_block_stop",
		"content_block_start", "content_block_delta", "content_block_delta", "content_block_stop",
		"content_block_start", "content_block_delta", "content_block_delta", "content_block_stop",
		"message_delta", "message_stop",
	}
	if got := types(evs); !reflect.DeepEqual(got, want) {
		t.Errorf("events = %q\nwant %q", got, want)
	}
	for path, want := range map[string]string{"thinking": "hmm, so", "text": "writing", "partial_json": `{"file_path":"/repo/a"}`} {
		if got := join(evs, "content_block_delta", "delta", path); got != want {
			t.Errorf("%s deltas make %q, want %q", path, got, want)
		}
	}
	if got := join(evs, "message_delta", "delta", "stop_reason"); got != "tool_use" {
		t.Errorf("stop reason %q, want tool_use", got)
	}
	usage := evs[len(evs)-2]["usage"]
	if want := (obj{"input_tokens": 120.0, "cache_read_input_tokens": 800.0, "cache_creation_input_tokens": 60.0, "output_tokens": 45.0}); !reflect.DeepEqual(usage, want) {
		t.Errorf("usage = %v, want %v", usage, want)
	}
	clean(t, s)
}

func TestAnthropicWholeAnswer(t *testing.T) {
	s := start(t, Anthropic, Script{Turns: [][]Step{{Say("done")}}, Usage: Usage{Input: 3, Output: 4}})
	body := ask(user("go"))
	body["stream"] = false
	got := postMessages(t, s, body).object(t)
	if want := []any{obj{"type": "text", "text": "done"}}; !reflect.DeepEqual(got["content"], want) || got["stop_reason"] != "end_turn" {
		t.Errorf("content = %v, stop %v", got["content"], got["stop_reason"])
	}
	if in := got["usage"].(obj)["input_tokens"]; in != 3.0 {
		t.Errorf("input tokens = %v, want the script's 3", in)
	}
	clean(t, s)
}

func TestTurnFollowsTheConversationNotTheOrder(t *testing.T) {
	s := start(t, Anthropic,
		Script{Name: "a", Prompt: "alpha", Turns: [][]Step{{Say("a0")}, {Say("a1")}, {Say("a2")}}},
		Script{Name: "b", Prompt: "beta", Turns: [][]Step{{Say("b0")}, {Say("b1")}}},
	)
	alpha, one, two := user("goal alpha"), toolRound("t1"), toolRound("t2", "t3")
	reminder := obj{"role": "user", "content": "<system-reminder>be brief</system-reminder>"}
	for _, c := range []struct {
		want     string
		messages []any
	}{
		{"a1", append([]any{alpha}, one...)},
		{"b0", []any{user("goal beta")}},
		{"a0", []any{alpha}},
		{"a2", append(append([]any{alpha}, one...), two...)},
		{"a2", append(append([]any{alpha}, one...), two...)},
		{"a1", append(append([]any{alpha}, two...), reminder)},
		{"b1", append(append(append([]any{alpha}, one...), user("now beta")), two...)},
	} {
		if got := join(postMessages(t, s, ask(c.messages...)).events(t), "content_block_delta", "delta", "text"); got != c.want {
			t.Errorf("answer %q, want %q", got, c.want)
		}
	}
	clean(t, s)
	reqs := s.Requests()
	if len(reqs) != 7 || reqs[0].System != "You are careful." || reqs[0].Model != "claude-test" || !reqs[0].Offers("Bash") {
		t.Errorf("recorded %d requests, first %+v", len(reqs), reqs[0])
	}
	if res := reqs[3].Results(); len(res) != 3 || res[2].Text != "ok t3" || res[2].ID != "t3" {
		t.Errorf("results = %+v", res)
	}
}

func TestOnceGivesASecondRunTheNextScript(t *testing.T) {
	s := start(t, Anthropic,
		Script{Once: true, Turns: [][]Step{{Say("first")}, {Say("first again")}}},
		Script{Once: true, Turns: [][]Step{{Say("second")}}},
	)
	say := func(session string, messages ...any) string {
		h := anthropicHeader()
		h.Set("X-Claude-Code-Session-Id", session)
		return join(post(t, soon(t), s.URL+"/v1/messages", ask(messages...), h).events(t), "content_block_delta", "delta", "text")
	}
	go1 := user("go")
	got := []string{say("s1", go1), say("s2", go1), say("s1", append([]any{go1}, toolRound("t")...)...)}
	if want := []string{"first", "second", "first again"}; !reflect.DeepEqual(got, want) {
		t.Errorf("answers %q, want %q", got, want)
	}
	clean(t, s)
}

func TestReplySeesTheResults(t *testing.T) {
	s := start(t, Anthropic, Script{Reply: func(r Request) []Step {
		if res := r.Results(); len(res) > 0 {
			return []Step{Say("saw " + res[0].Text)}
		}
		return []Step{Tool("Bash", obj{"command": "date"})}
	}})
	evs := postMessages(t, s, ask(append([]any{user("go")}, toolRound("t9")...)...)).events(t)
	if got := join(evs, "content_block_delta", "delta", "text"); got != "saw ok t9" {
		t.Errorf("answer %q", got)
	}
	clean(t, s)
}

func TestAnthropicBackgroundConsumesNothing(t *testing.T) {
	s := start(t, Anthropic, Script{Prompt: "goal", Turns: [][]Step{{Say("turn 0")}}})
	quota := obj{"model": "m", "max_tokens": 1, "messages": []any{user("quota")}}
	if r := postMessages(t, s, quota); r.status != http.StatusOK {
		t.Errorf("quota probe: status %d", r.status)
	}
	count := post(t, soon(t), s.URL+"/v1/messages/count_tokens?beta=true", ask(user("goal")), anthropicHeader())
	if n, _ := count.object(t)["input_tokens"].(float64); n <= 0 {
		t.Errorf("count_tokens = %s", count.body)
	}
	res, err := http.Head(s.URL)
	if err != nil || res.StatusCode != http.StatusOK {
		t.Errorf("ping: %v %v", res, err)
	}
	if got := join(postMessages(t, s, ask(user("goal"))).events(t), "content_block_delta", "delta", "text"); got != "turn 0" {
		t.Errorf("answer %q", got)
	}
	clean(t, s)
}

func TestAnthropicRefusesWhatNobodyExpects(t *testing.T) {
	dangling := toolRound("t1")[0]
	stray := toolRound("t1")[1]
	noModel := ask(user("goal"))
	delete(noModel, "model")
	for name, c := range map[string]struct {
		body   obj
		header http.Header
		want   string
	}{
		"unknown prompt":     {ask(user("something else")), anthropicHeader(), "no script expects"},
		"too many turns":     {ask(append([]any{user("goal")}, toolRound("t")...)...), anthropicHeader(), "asks for turn 1"},
		"call without reply": {ask(user("goal"), dangling), anthropicHeader(), "has no result"},
		"result for nothing": {ask(user("goal"), stray), anthropicHeader(), "answers no open call"},
		"no key":             {ask(user("goal")), http.Header{"Anthropic-Version": {"x"}}, "x-api-key"},
		"no version":         {ask(user("goal")), http.Header{"X-Api-Key": {"x"}}, "anthropic-version"},
		"no model":           {noModel, anthropicHeader(), "no model"},
		"tool not offered":   {ask(user("wrong tool")), anthropicHeader(), `calls tool "Nope"`},
		"no messages":        {ask(), anthropicHeader(), "no messages"},
	} {
		t.Run(name, func(t *testing.T) {
			s := start(t, Anthropic,
				Script{Name: "goal", Prompt: "goal", Turns: [][]Step{{Say("x")}}},
				Script{Name: "tool", Prompt: "wrong tool", Turns: [][]Step{{Tool("Nope", nil)}}},
			)
			r := post(t, soon(t), s.URL+"/v1/messages", c.body, c.header)
			if r.status != http.StatusInternalServerError || !strings.Contains(string(r.body), "modeltest: ") {
				t.Errorf("status %d, body %s", r.status, r.body)
			}
			violated(t, s, c.want)
		})
	}
}

func TestUnknownEndpointIsAViolation(t *testing.T) {
	s := start(t, Anthropic)
	if r := post(t, soon(t), s.URL+"/v1/complete", obj{}, anthropicHeader()); r.status != http.StatusNotFound {
		t.Errorf("status %d", r.status)
	}
	violated(t, s, "POST /v1/complete")
}

func TestAnthropicFaultStatus(t *testing.T) {
	s := start(t, Anthropic, Script{
		Turns:  [][]Step{{Say("finally")}},
		Faults: []Fault{{Status: 429, RetryAfter: 1500 * time.Millisecond, Times: 2}, {Status: 529, Times: 1, Message: "busy"}},
	})
	first := postMessages(t, s, ask(user("go")))
	if first.status != 429 || first.header.Get("Retry-After") != "2" || first.object(t)["error"].(obj)["type"] != "rate_limit_error" {
		t.Errorf("first: %d %v %s", first.status, first.header, first.body)
	}
	postMessages(t, s, ask(user("go")))
	third := postMessages(t, s, ask(user("go")))
	if e := third.object(t)["error"].(obj); third.status != 529 || e["type"] != "overloaded_error" || e["message"] != "busy" {
		t.Errorf("third: %d %s", third.status, third.body)
	}
	if r := postMessages(t, s, ask(user("go"))); r.status != http.StatusOK {
		t.Errorf("fourth: %d, want the answer", r.status)
	}
	clean(t, s)
}

func TestFaultCutEndsTheStreamEarly(t *testing.T) {
	s := start(t, Anthropic, Script{Turns: [][]Step{{Say("never whole")}}, Faults: []Fault{{Cut: true, After: 3, Times: 1}}})
	r := postMessages(t, s, ask(user("go")))
	if got := len(r.events(t)); r.broken == nil || got != 3 {
		t.Errorf("%d events, ended with %v; want 3 and a broken connection", got, r.broken)
	}
	if r := postMessages(t, s, ask(user("go"))); r.broken != nil {
		t.Errorf("the next try: %v", r.broken)
	}
}

// hang opens an answer that stops after two events and returns the still open body.
func hang(t *testing.T, ctx context.Context, s *Server) io.Reader {
	t.Helper()
	raw, err := json.Marshal(ask(user("go")))
	if err != nil {
		t.Fatal(err)
	}
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, s.URL+"/v1/messages", bytes.NewReader(raw))
	if err != nil {
		t.Fatal(err)
	}
	req.Header = anthropicHeader()
	res, err := http.DefaultClient.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = res.Body.Close() })
	body := bufio.NewReader(res.Body)
	for line := ""; line != "data: {\"content_block\":{\"text\":\"\",\"type\":\"text\"},\"index\":0,\"type\":\"content_block_start\"}\n"; {
		if line, err = body.ReadString('\n'); err != nil {
			t.Fatalf("the answer ended before its second event: %v", err)
		}
	}
	return body
}

func TestFaultHangLastsUntilSomebodyGoes(t *testing.T) {
	s := Anthropic(Script{Turns: [][]Step{{Say("never whole")}}, Faults: []Fault{{Turn: -1, Hang: true, After: 2}}})
	ctx, cancel := context.WithCancel(soon(t))
	first, second := hang(t, ctx, s), hang(t, soon(t), s)
	cancel()
	if _, err := io.ReadAll(first); !errors.Is(err, context.Canceled) {
		t.Errorf("after the client went: %v", err)
	}
	s.Close()
	if rest, err := io.ReadAll(second); err == nil || strings.Contains(string(rest), "data:") {
		t.Errorf("after the server closed: %v, %q", err, rest)
	}
}

func TestWaitEndsWithItsContext(t *testing.T) {
	s := start(t, Anthropic)
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if err := s.Wait(ctx, func(rs []Request) bool { return len(rs) > 0 }); !errors.Is(err, context.Canceled) {
		t.Errorf("error = %v", err)
	}
}
