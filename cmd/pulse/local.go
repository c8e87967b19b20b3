package main

import (
	"context"

	"pulseloop/loop"
	"pulseloop/pulse"
)

// local gives the terminal's conversation what was started from this machine's
// command line: nobody else would be told of its questions.
type local struct{ loop.Doer }

// doer is what the API calls.
func (a *app) doer() loop.Doer {
	if a.terminal == nil {
		return a.actions
	}
	return local{a.actions}
}

func (l local) Start(ctx context.Context, r loop.StartRequest) (pulse.Session, error) {
	if r.Origin == pulse.OriginCLI && r.ChatID == "" && r.ChatThreadID == "" && r.PhoneNumber == "" && r.DiscordThreadID == "" && r.ConsoleID == "" {
		r.ConsoleID = consoleID
	}
	return l.Doer.Start(ctx, r)
}
