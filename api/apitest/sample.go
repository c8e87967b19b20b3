package apitest

import (
	"maps"

	"pulseloop/pulse"
)

// whole completes the data of an event to what the program writes with one of
// its type, so that a test names only what it is about.
func whole(kind pulse.EventType, data map[string]any) map[string]any {
	const gate = "019cb73d-3218-7da8-9f8e-4ba449e2ab99"
	out := map[string]any{}
	switch kind {
	case pulse.EventSessionStarted:
		out = map[string]any{"goal": "Implement auth", "project": "my-app", "role": string(pulse.RolePulsing), "branch": "pulse/implement-auth"}
	case pulse.EventSessionCompleted:
		out = map[string]any{"iterations": 1, "commits": 1, "branch": "pulse/implement-auth"}
	case pulse.EventSessionError:
		out = map[string]any{"error": "it broke", "hint": "", "iteration": 1}
	case pulse.EventSessionChanged:
		out = map[string]any{"status": string(pulse.SessionRunning), "from": string(pulse.SessionPending), "reason": ""}
	case pulse.EventIterationStarted:
		out = map[string]any{"iteration": 1, "max": 10, "iterationId": "iteration", "taskId": "task", "attempt": 1, "anchorStrategy": ""}
	case pulse.EventIterationEnded:
		out = map[string]any{"iteration": 1, "iterationId": "iteration", "status": string(pulse.IterationComplete), "error": ""}
	case pulse.EventGateOpened:
		out = map[string]any{"gateId": gate, "kind": string(pulse.GateQuestion), "prompt": "which?"}
	case pulse.EventGateResolved:
		out = map[string]any{"gateId": gate, "kind": string(pulse.GateQuestion), "choice": "", "by": "Ann"}
	case pulse.EventTurnStarted:
		out = map[string]any{"role": string(pulse.TurnAssistant), "agent": "codex", "iteration": 1, "iterationId": "iteration"}
	case pulse.EventTurnCompleted:
		out = map[string]any{"role": string(pulse.TurnAssistant), "status": string(pulse.TurnCompleted), "iterationId": "iteration"}
	case pulse.EventToolStarted:
		out = map[string]any{"callId": "call", "name": "shell", "summary": "ls", "iterationId": "iteration"}
	case pulse.EventToolCompleted:
		out = map[string]any{"callId": "call", "name": "shell", "status": string(pulse.ToolCompleted), "durationMs": 2, "iterationId": "iteration"}
	case pulse.EventTurnNote:
		out = map[string]any{"text": "tries again", "iterationId": "iteration"}
	}
	maps.Copy(out, data)
	return out
}
