package modeltest

import (
	"net/http"
	"reflect"
	"strings"
	"testing"
	"time"
)

func bearer() http.Header { return http.Header{"Authorization": {"Bearer " + StubKey}} }

// request builds a Responses request from input items.
func request(items ...any) obj {
	return obj{
		"model": "gpt-test", "stream": true, "instructions": "You are careful.", "prompt_cache_key": "s1",
		"tools": []any{
			obj{"type": "function", "name": "exec_command"},
			obj{"type": "custom", "name": "apply_patch"},
			obj{"type": "namespace", "name": "team", "tools": []any{obj{"type": "function", "name": "spawn"}}},
			obj{"type": "web_search"},
		},
		"input": items,
	}
}

func said(role, text string) obj {
	return obj{"type": "message", "role": role, "content": []any{obj{"type": "input_text", "text": text}}}
}

func call(id string) obj {
	return obj{"type": "function_call", "call_id": id, "name": "exec_command", "arguments": "{}"}
}

func output(id string) obj {
	return obj{"type": "function_call_output", "call_id": id, "output": "ok " + id}
}

func postResponses(t *testing.T, s *Server, body any) reply {
	t.Helper()
	return post(t, soon(t), s.URL+"/v1/responses", body, bearer())
}

func TestResponsesStreamsThoughtTextAndCalls(t *testing.T) {
	s := start(t, Responses, Turns([]Step{
		Think("hmm, so"), Say("writing"), Tool("exec_command", obj{"cmd": "ls"}), Tool("apply_patch", "*** Begin Patch"),
	})...)
	evs := postResponses(t, s, request(said("developer", "rules"), said("user", "go"))).events(t)
	item := func(deltas ...string) []string {
		return append(append([]string{"response.output_item.added"}, deltas...), "response.output_item.done")
	}
	want := []string{"response.created", "response.in_progress"}
	want = append(want, item("response.reasoning_summary_part.added", "response.reasoning_summary_text.delta", "response.reasoning_summary_text.delta", "response.reasoning_summary_text.done")...)
	want = append(want, item("response.content_part.added", "response.output_text.delta", "response.output_text.delta", "response.output_text.done")...)
	want = append(want, item("response.function_call_arguments.delta", "response.function_call_arguments.delta", "response.function_call_arguments.done")...)
	want = append(want, item("response.custom_tool_call_input.delta", "response.custom_tool_call_input.delta", "response.custom_tool_call_input.done")...)
	want = append(want, "response.completed")
	if got := types(evs); !reflect.DeepEqual(got, want) {
		t.Errorf("events = %q\nwant %q", got, want)
	}
	for typ, want := range map[string]string{
		"response.reasoning_summary_text.delta": "hmm, so", "response.output_text.delta": "writing",
		"response.function_call_arguments.delta": `{"cmd":"ls"}`, "response.custom_tool_call_input.delta": "*** Begin Patch",
	} {
		if got := join(evs, typ, "delta"); got != want {
			t.Errorf("%s make %q, want %q", typ, got, want)
		}
	}
	final := evs[len(evs)-1]["response"].(obj)
	usage := obj{
		"input_tokens": 920.0, "input_tokens_details": obj{"cached_tokens": 800.0}, "output_tokens": 45.0,
		"output_tokens_details": obj{"reasoning_tokens": 7.0}, "total_tokens": 965.0,
	}
	if !reflect.DeepEqual(final["usage"], usage) {
		t.Errorf("usage = %v, want %v", final["usage"], usage)
	}
	kinds := []string{"reasoning", "message", "function_call", "custom_tool_call"}
	if got := types(objects(final["output"])); !reflect.DeepEqual(got, kinds) {
		t.Errorf("output = %q, want %q", got, kinds)
	}
	clean(t, s)
	r := s.Requests()[0]
	if want := []string{"exec_command", "apply_patch", "team.spawn", "web_search"}; !reflect.DeepEqual(r.Tools, want) || r.System != "You are careful." || r.Prompt() != "go" || r.Session != "s1" {
		t.Errorf("decoded %+v", r)
	}
}

func objects(v any) []obj {
	var out []obj
	for _, o := range v.([]any) {
		out = append(out, o.(obj))
	}
	return out
}

func TestResponsesWholeAnswerToAString(t *testing.T) {
	s := start(t, Responses, Turns([]Step{Say("done")})...)
	body := request()
	body["stream"], body["input"] = false, "go"
	got := postResponses(t, s, body).object(t)
	if got["status"] != "completed" || s.Requests()[0].Prompt() != "go" {
		t.Errorf("answer %v to prompt %q", got, s.Requests()[0].Prompt())
	}
	clean(t, s)
}

func TestResponsesTurnFollowsTheConversation(t *testing.T) {
	s := start(t, Responses,
		Script{Prompt: "alpha", Turns: [][]Step{{Say("a0")}, {Say("a1")}, {Say("a2")}}},
		Script{Prompt: "beta", Turns: [][]Step{{Say("b0")}}},
	)
	context := said("user", "<environment_context>\n<cwd>/repo</cwd>\n</environment_context>")
	alpha, beta := said("user", "goal alpha"), said("user", "goal beta")
	for _, c := range []struct {
		want  string
		items []any
	}{
		{"a1", []any{context, alpha, call("1"), call("2"), output("1"), output("2"), context}},
		{"a0", []any{context, alpha}},
		{"b0", []any{alpha, call("1"), output("1"), said("assistant", "a1"), beta}},
		{"a2", []any{alpha, call("1"), output("1"), obj{"type": "reasoning", "summary": []any{}}, call("2"), output("2")}},
	} {
		if got := join(postResponses(t, s, request(c.items...)).events(t), "response.output_text.delta", "delta"); got != c.want {
			t.Errorf("answer %q, want %q", got, c.want)
		}
	}
	clean(t, s)
}

func TestResponsesToolsInsideTheInput(t *testing.T) {
	s := start(t, Responses, Turns([]Step{Tool("exec", "text(1)")})...)
	tools := obj{"type": "additional_tools", "role": "developer", "tools": []any{
		obj{"type": "namespace", "name": "functions", "tools": []any{obj{"type": "custom", "name": "exec"}}},
	}}
	body := request(tools, said("user", "go"))
	delete(body, "tools")
	evs := postResponses(t, s, body).events(t)
	if got := join(evs, "response.custom_tool_call_input.done", "input"); got != "text(1)" {
		t.Errorf("freeform input %q", got)
	}
	clean(t, s)
}

func TestResponsesRefusesWhatNobodyExpects(t *testing.T) {
	noModel := request(said("user", "goal"))
	delete(noModel, "model")
	badInput := request()
	badInput["input"] = 7
	for name, c := range map[string]struct {
		body   obj
		header http.Header
		want   string
	}{
		"unknown prompt":     {request(said("user", "something else")), bearer(), "no script expects"},
		"too many turns":     {request(said("user", "goal"), call("1"), output("1")), bearer(), "asks for turn 1"},
		"call without reply": {request(said("user", "goal"), call("1")), bearer(), "has no result"},
		"result for nothing": {request(said("user", "goal"), output("1")), bearer(), "answers no open call"},
		"no key":             {request(said("user", "goal")), http.Header{}, "no bearer"},
		"no model":           {noModel, bearer(), "no model"},
		"input of no kind":   {badInput, bearer(), "neither a string nor an array"},
		"tool not offered":   {request(said("user", "wrong tool")), bearer(), `calls tool "nope"`},
	} {
		t.Run(name, func(t *testing.T) {
			s := start(t, Responses,
				Script{Name: "goal", Prompt: "goal", Turns: [][]Step{{Say("x")}}},
				Script{Name: "tool", Prompt: "wrong tool", Turns: [][]Step{{Tool("nope", nil)}}},
			)
			r := post(t, soon(t), s.URL+"/v1/responses", c.body, c.header)
			if r.status != http.StatusInternalServerError || !strings.Contains(string(r.body), "modeltest: ") {
				t.Errorf("status %d, body %s", r.status, r.body)
			}
			violated(t, s, c.want)
		})
	}
}

func TestResponsesFaults(t *testing.T) {
	s := start(t, Responses, Script{
		Turns:  [][]Step{{Say("finally")}},
		Faults: []Fault{{Status: 429, RetryAfter: time.Second, Times: 1}, {Cut: true, After: 2, Times: 1}},
	})
	limited := postResponses(t, s, request(said("user", "go")))
	if limited.status != 429 || limited.header.Get("Retry-After") != "1" || limited.object(t)["error"].(obj)["code"] != "rate_limit_exceeded" {
		t.Errorf("limited: %d %v %s", limited.status, limited.header, limited.body)
	}
	cut := postResponses(t, s, request(said("user", "go")))
	if cut.broken == nil || len(cut.events(t)) != 2 {
		t.Errorf("cut: %v after %s", cut.broken, cut.body)
	}
	if r := postResponses(t, s, request(said("user", "go"))); r.status != http.StatusOK || r.broken != nil {
		t.Errorf("third: %d %v", r.status, r.broken)
	}
	clean(t, s)
}

func TestResponsesListsTheModel(t *testing.T) {
	s := start(t, Responses)
	res, err := http.Get(s.URL + "/v1/models")
	if err != nil {
		t.Fatal(err)
	}
	defer res.Body.Close()
	if res.StatusCode != http.StatusOK {
		t.Errorf("status %d", res.StatusCode)
	}
	clean(t, s)
}
