package bot

import (
	"context"
	"fmt"
	"strings"

	"pulseloop/pulse"
)

// press carries out what a button stands for. Its data names everything
// needed, so that a button of before a restart works like a new one.
func (r *Router) press(ctx context.Context, u *update) error {
	if !u.who.Role.May() {
		return mayNot(u.who)
	}
	kind, rest, _ := strings.Cut(u.e.Data, ":")
	id, key, ok := strings.Cut(rest, ":")
	switch {
	case !ok || !pulse.ValidUUID(id):
	case kind == "g":
		return r.choose(ctx, u, pulse.GateID(id), key)
	case kind == "p":
		return r.chosen(ctx, u, pulse.InboundID(id), key)
	}
	return pulse.Invalid("this button does not lead anywhere", "/help shows what I understand")
}

func (r *Router) choose(ctx context.Context, u *update, id pulse.GateID, key string) error {
	g, err := r.cfg.Reader.Gate(ctx, id)
	if pulse.CodeOf(err) == pulse.CodeNotFound {
		return pulse.NotFound("this question is not there any more", "/list shows the sessions")
	}
	if err != nil {
		return fmt.Errorf("read gate %s: %w", id, err)
	}
	if g.Status != pulse.GateOpen {
		return pulse.Conflict(decided(g), "")
	}
	return r.answer(ctx, u, g.SessionID, g.ID, key, "")
}
