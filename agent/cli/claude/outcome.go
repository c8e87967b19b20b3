package claude

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	"pulseloop/agent/cli"
)

// outcome is what a result line adds to a frame.
type outcome struct {
	IsError   bool              `json:"is_error"`
	Result    json.RawMessage   `json:"result"`
	Errors    []json.RawMessage `json:"errors"`
	Cost      cli.Money         `json:"total_cost_usd"`
	Usage     usage             `json:"usage"`
	APIStatus cli.Count         `json:"api_error_status"`
	Denials   []struct {
		Tool string `json:"tool_name"`
	} `json:"permission_denials"`
}

// end takes a result. One of subtype compact comes in the middle of a run;
// after work in the background there can be several: the last one's text
// counts, each has the tokens since the one before, and the cost is that of
// the whole run [tried].
func (d *decoder) end(f frame) {
	if f.Subtype == "compact" {
		d.note("the conversation was summarised to make room")
		return
	}
	d.denied(f)
	r := &cli.Result{Usage: f.Usage.neutral()}
	if d.result != nil {
		r.Usage = cli.AddUsage(r.Usage, d.result.Usage)
	}
	r.Usage.CostMicros = max(f.Cost.Micros(), r.Usage.CostMicros)
	text := cli.Clean(rawText(f.Result))
	if r.Failed = f.IsError || strings.HasPrefix(f.Subtype, "error"); r.Failed {
		r.FinalText = d.lastText
		r.Error = failure(f, text)
		r.Hint = advice(int(f.APIStatus), r.Error)
	} else if r.FinalText = text; text == "" {
		r.FinalText = d.lastText
	}
	d.result = r
}

// failure puts what is known of the reason into one text.
func failure(f frame, text string) string {
	if text != "" {
		return text
	}
	var parts []string
	for _, raw := range f.Errors {
		// The CLI's notes to its own makers come in brackets.
		if s := rawText(raw); s != "" && !strings.HasPrefix(s, "[") {
			parts = append(parts, cli.Clean(s))
		}
	}
	switch {
	case len(parts) > 0:
		return strings.Join(parts, "; ")
	case f.Subtype == "error_max_turns":
		return "claude stopped at its own limit of turns"
	case f.Subtype == "error_during_execution":
		return "claude was interrupted or failed while it worked"
	}
	return "claude failed and gave no reason"
}

// advice is what a person can do about a failure.
func advice(status int, text string) string {
	text = strings.ToLower(text)
	has := func(parts ...string) bool {
		return slices.ContainsFunc(parts, func(p string) bool { return strings.Contains(text, p) })
	}
	switch {
	case status == 401 || status == 403 || has("not logged in", "/login", "invalid api key", "authentication"):
		return fixLogin
	case status == 429 || has("usage limit", "rate limit", "limit reached"):
		return "the account's limit is used up: wait until it is renewed, then resume"
	case has("credit balance", "billing"):
		return "check the balance of the account"
	case has("no conversation found"):
		return "the earlier conversation is gone: start a new one"
	case has("prompt is too long"):
		return "the goal needs more context than the model takes: split it"
	case status >= 500 || has("overloaded"):
		return "the provider has a problem: try again later"
	}
	return ""
}

// denied tells which tools were refused: such a run looks well and did less
// than it was asked for.
func (d *decoder) denied(f frame) {
	var tools []string
	for _, denial := range f.Denials {
		if tool := cli.OneLine(denial.Tool); !slices.Contains(tools, tool) && len(tools) < 10 {
			tools = append(tools, tool)
		}
	}
	if len(tools) > 0 {
		d.note(fmt.Sprintf("not permitted and therefore not done: %s", strings.Join(tools, ", ")))
	}
}
