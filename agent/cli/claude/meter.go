package claude

import (
	"pulseloop/agent/cli"
	"pulseloop/pulse"
)

type usage struct {
	Input      cli.Count `json:"input_tokens"`
	Output     cli.Count `json:"output_tokens"`
	CacheRead  cli.Count `json:"cache_read_input_tokens"`
	CacheWrite cli.Count `json:"cache_creation_input_tokens"`
}

func (u usage) neutral() pulse.Usage {
	return pulse.Usage{
		InputTokens: int64(u.Input), OutputTokens: int64(u.Output),
		CacheReadTokens: int64(u.CacheRead), CacheWriteTokens: int64(u.CacheWrite),
	}
}

// maxOpenMessages bounds the messages that are under way at once: one for
// the agent, one for each sub-agent.
const maxOpenMessages = 256

// meter adds up the usage of partial messages while a run goes on. The final
// result brings the sums of the CLI itself, which replace it.
type meter struct {
	done pulse.Usage
	open map[string]pulse.Usage // by sub-agent, "" for the agent itself
}

// update takes the usage of the message that who is at. A later report
// replaces an earlier one field by field, for it may leave fields out.
func (m *meter) update(who string, u usage) {
	now, known := m.open[who]
	if !known && len(m.open) >= maxOpenMessages {
		return
	}
	n := u.neutral()
	now.InputTokens = max(now.InputTokens, n.InputTokens)
	now.OutputTokens = max(now.OutputTokens, n.OutputTokens)
	now.CacheReadTokens = max(now.CacheReadTokens, n.CacheReadTokens)
	now.CacheWriteTokens = max(now.CacheWriteTokens, n.CacheWriteTokens)
	m.open[who] = now
}

// finish closes the message that who is at.
func (m *meter) finish(who string) {
	m.done = cli.AddUsage(m.done, m.open[who])
	delete(m.open, who)
}

func (m *meter) total() pulse.Usage {
	sum := m.done
	for _, u := range m.open {
		sum = cli.AddUsage(sum, u)
	}
	return sum
}

// partialEvent is an event of the model's own stream.
type partialEvent struct {
	Type    string `json:"type"`
	Message struct {
		Usage usage `json:"usage"`
	} `json:"message"`
	Delta struct {
		Type string `json:"type"`
		Text string `json:"text"`
	} `json:"delta"`
	Usage usage `json:"usage"`
}

func (d *decoder) partial(f frame, own bool) {
	var e partialEvent
	if !cli.Decode(f.Event, &e) {
		return
	}
	who := ""
	if !own {
		who = *f.Parent
	}
	switch e.Type {
	case "message_start":
		d.meter.finish(who)
		d.meter.update(who, e.Message.Usage)
	case "message_delta":
		d.meter.update(who, e.Usage)
		total := d.meter.total()
		d.emit(cli.Event{Kind: cli.EventUsage, Usage: &total})
	case "message_stop":
		d.meter.finish(who)
	case "content_block_delta":
		if own && e.Delta.Type == "text_delta" {
			d.say(cli.EventTextDelta, e.Delta.Text)
		}
	}
}
