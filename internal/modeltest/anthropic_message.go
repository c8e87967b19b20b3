package modeltest

import (
	"encoding/json"
	"fmt"
)

// anthropicMessage is an answer on its way to the wire, streamed or whole.
type anthropicMessage struct {
	id, model, stop string
	usage           Usage
	blocks          []anthropicOut
}

type anthropicOut struct {
	step Step
	// id and raw belong to a tool call.
	id, raw string
}

func (s *Server) anthropicMessage(req Request, a answer) (anthropicMessage, error) {
	m := anthropicMessage{id: s.nextID("msg_"), model: req.Model, stop: "end_turn", usage: a.script.usage()}
	for _, st := range a.steps {
		out := anthropicOut{step: st}
		if st.Kind == StepTool {
			raw, err := st.rawInput()
			if err != nil {
				return m, fmt.Errorf("encode input of tool %s: %w", st.Tool, err)
			}
			out.id, out.raw, m.stop = s.nextID("toolu_"), raw, "tool_use"
		}
		m.blocks = append(m.blocks, out)
	}
	return m, nil
}

func (m anthropicMessage) usageMap(output int) map[string]any {
	return map[string]any{
		"input_tokens": m.usage.Input, "cache_read_input_tokens": m.usage.CacheRead,
		"cache_creation_input_tokens": m.usage.CacheWrite, "output_tokens": output,
	}
}

func (m anthropicMessage) head() map[string]any {
	return map[string]any{
		"id": m.id, "type": "message", "role": "assistant", "model": m.model, "content": []any{},
		"stop_reason": nil, "stop_sequence": nil, "usage": m.usageMap(1),
	}
}

func (m anthropicMessage) whole() map[string]any {
	msg := m.head()
	content := []any{}
	for _, b := range m.blocks {
		content = append(content, b.whole())
	}
	msg["content"], msg["stop_reason"], msg["usage"] = content, m.stop, m.usageMap(m.usage.Output)
	return msg
}

func (b anthropicOut) whole() map[string]any {
	switch b.step.Kind {
	case StepThink:
		return map[string]any{"type": "thinking", "thinking": b.step.Text, "signature": signature}
	case StepTool:
		var input any
		if json.Unmarshal([]byte(b.raw), &input) != nil {
			input = b.raw
		}
		return map[string]any{"type": "tool_use", "id": b.id, "name": b.step.Tool, "input": input}
	}
	return map[string]any{"type": "text", "text": b.step.Text}
}

// signature stands where the provider signs a thought; clients hand it back untouched.
const signature = "c2NyaXB0ZWQ="

func (m anthropicMessage) events() []event {
	evs := []event{{"message_start", map[string]any{"message": m.head()}}}
	for i, b := range m.blocks {
		evs = append(evs, event{"content_block_start", map[string]any{"index": i, "content_block": b.empty()}})
		for _, d := range b.deltas() {
			evs = append(evs, event{"content_block_delta", map[string]any{"index": i, "delta": d}})
		}
		evs = append(evs, event{"content_block_stop", map[string]any{"index": i}})
	}
	return append(evs,
		event{"message_delta", map[string]any{
			"delta": map[string]any{"stop_reason": m.stop, "stop_sequence": nil}, "usage": m.usageMap(m.usage.Output),
		}},
		event{"message_stop", map[string]any{}})
}

func (b anthropicOut) empty() map[string]any {
	switch b.step.Kind {
	case StepThink:
		return map[string]any{"type": "thinking", "thinking": "", "signature": ""}
	case StepTool:
		return map[string]any{"type": "tool_use", "id": b.id, "name": b.step.Tool, "input": map[string]any{}}
	}
	return map[string]any{"type": "text", "text": ""}
}

func (b anthropicOut) deltas() []map[string]any {
	var out []map[string]any
	switch b.step.Kind {
	case StepThink:
		for _, p := range pieces(b.step.Text) {
			out = append(out, map[string]any{"type": "thinking_delta", "thinking": p})
		}
		return append(out, map[string]any{"type": "signature_delta", "signature": signature})
	case StepTool:
		for _, p := range pieces(b.raw) {
			out = append(out, map[string]any{"type": "input_json_delta", "partial_json": p})
		}
		return out
	}
	for _, p := range pieces(b.step.Text) {
		out = append(out, map[string]any{"type": "text_delta", "text": p})
	}
	return out
}
