package modeltest

import "fmt"

// ResponsesModel is the model the Responses server lists and CodexEnv configures.
const ResponsesModel = "gpt-5-codex"

type responsesAnswer struct {
	id, model string
	usage     Usage
	items     []responsesOut
}

type responsesOut struct {
	step       Step
	id, callID string
	raw        string
	freeform   bool
}

func (s *Server) responsesAnswer(req Request, a answer, freeform map[string]bool) (responsesAnswer, error) {
	out := responsesAnswer{id: s.nextID("resp_"), model: req.Model, usage: a.script.usage()}
	for _, st := range a.steps {
		o := responsesOut{step: st}
		switch st.Kind {
		case StepTool:
			raw, err := st.rawInput()
			if err != nil {
				return out, fmt.Errorf("encode input of tool %s: %w", st.Tool, err)
			}
			o.id, o.callID, o.raw, o.freeform = s.nextID("fc_"), s.nextID("call_"), raw, freeform[st.Tool]
		case StepThink:
			o.id = s.nextID("rs_")
		default:
			o.id = s.nextID("msg_")
		}
		out.items = append(out.items, o)
	}
	return out, nil
}

func (a responsesAnswer) whole(status string) map[string]any {
	output := []any{}
	if status == "completed" {
		for _, it := range a.items {
			output = append(output, it.done())
		}
	}
	return map[string]any{
		"id": a.id, "object": "response", "created_at": 0, "status": status, "model": a.model, "output": output,
		"error": nil, "incomplete_details": nil, "usage": a.usageMap(status),
	}
}

func (a responsesAnswer) usageMap(status string) map[string]any {
	if status != "completed" {
		return nil
	}
	in, out := a.usage.Input+a.usage.CacheRead, a.usage.Output
	return map[string]any{
		"input_tokens": in, "input_tokens_details": map[string]any{"cached_tokens": a.usage.CacheRead},
		"output_tokens": out, "output_tokens_details": map[string]any{"reasoning_tokens": a.usage.Reasoning},
		"total_tokens": in + out,
	}
}

func (a responsesAnswer) events() []event {
	evs := []event{
		{"response.created", map[string]any{"response": a.whole("in_progress")}},
		{"response.in_progress", map[string]any{"response": a.whole("in_progress")}},
	}
	for i, it := range a.items {
		evs = append(evs, event{"response.output_item.added", map[string]any{"output_index": i, "item": it.empty()}})
		evs = append(evs, it.deltas(i)...)
		evs = append(evs, event{"response.output_item.done", map[string]any{"output_index": i, "item": it.done()}})
	}
	evs = append(evs, event{"response.completed", map[string]any{"response": a.whole("completed")}})
	for i := range evs {
		evs[i].data["sequence_number"] = i
	}
	return evs
}

func (o responsesOut) empty() map[string]any {
	item := o.done()
	switch {
	case o.step.Kind == StepThink:
		item["summary"] = []any{}
	case o.step.Kind == StepTool && o.freeform:
		item["input"], item["status"] = "", "in_progress"
	case o.step.Kind == StepTool:
		item["arguments"], item["status"] = "", "in_progress"
	default:
		item["content"], item["status"] = []any{}, "in_progress"
	}
	return item
}

func (o responsesOut) done() map[string]any {
	switch {
	case o.step.Kind == StepThink:
		return map[string]any{"type": "reasoning", "id": o.id, "summary": []any{
			map[string]any{"type": "summary_text", "text": o.step.Text},
		}, "encrypted_content": signature}
	case o.step.Kind == StepTool && o.freeform:
		return map[string]any{
			"type": "custom_tool_call", "id": o.id, "call_id": o.callID, "name": o.step.Tool, "input": o.raw, "status": "completed",
		}
	case o.step.Kind == StepTool:
		return map[string]any{
			"type": "function_call", "id": o.id, "call_id": o.callID, "name": o.step.Tool, "arguments": o.raw, "status": "completed",
		}
	}
	return map[string]any{"type": "message", "id": o.id, "role": "assistant", "status": "completed", "content": []any{
		map[string]any{"type": "output_text", "text": o.step.Text, "annotations": []any{}},
	}}
}

func (o responsesOut) deltas(index int) []event {
	at := func(more map[string]any) map[string]any {
		more["item_id"], more["output_index"] = o.id, index
		return more
	}
	var evs []event
	add := func(name string, data map[string]any) { evs = append(evs, event{name, at(data)}) }
	switch o.step.Kind {
	case StepThink:
		add("response.reasoning_summary_part.added", map[string]any{"summary_index": 0, "part": map[string]any{"type": "summary_text", "text": ""}})
		for _, p := range pieces(o.step.Text) {
			add("response.reasoning_summary_text.delta", map[string]any{"summary_index": 0, "delta": p})
		}
		add("response.reasoning_summary_text.done", map[string]any{"summary_index": 0, "text": o.step.Text})
	case StepTool:
		name, key := "response.function_call_arguments", "arguments"
		if o.freeform {
			name, key = "response.custom_tool_call_input", "input"
		}
		for _, p := range pieces(o.raw) {
			add(name+".delta", map[string]any{"delta": p})
		}
		add(name+".done", map[string]any{key: o.raw})
	default:
		add("response.content_part.added", map[string]any{"content_index": 0, "part": map[string]any{"type": "output_text", "text": "", "annotations": []any{}}})
		for _, p := range pieces(o.step.Text) {
			add("response.output_text.delta", map[string]any{"content_index": 0, "delta": p})
		}
		add("response.output_text.done", map[string]any{"content_index": 0, "text": o.step.Text})
	}
	return evs
}
