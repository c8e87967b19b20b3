package main

import (
	"context"
	"fmt"
	"os/user"
	"time"

	"pulseloop/bot"
	"pulseloop/bot/console"
	"pulseloop/pulse"
)

// consoleID names the terminal's conversation. It is the same at every
// start, so that what was missed is told by the next one.
const consoleID = "local"

// wireConsole puts the conversation into this terminal. Whoever runs the
// program owns it, so that nobody has to pair with themselves.
func (a *app) wireConsole(ctx context.Context) error {
	name := userName()
	owner := pulse.Operator{ID: pulse.OperatorID(pulse.NewUUID(time.Now())), Platform: pulse.PlatformConsole, UserID: name,
		Name: name, Role: pulse.RoleOwner, CreatedAt: time.Now().UTC()}
	if known, err := a.store.Operator(ctx, pulse.PlatformConsole, name); err == nil {
		owner = known
	}
	if err := a.store.Apply(ctx, pulse.Guard{}, pulse.Change{Operator: &owner}); err != nil {
		return fmt.Errorf("register the terminal's user: %w", err)
	}
	c := console.New(console.Config{In: a.o.in, Out: a.o.out, TTY: a.o.tty, Width: a.o.width, Intake: a.store,
		ConsoleID: consoleID, User: name, Name: name, Log: a.log})
	a.adapters = append(a.adapters, bot.Adapter{Platform: pulse.PlatformConsole, Decoder: c})
	a.senders = append(a.senders, c)
	a.terminal = c
	if a.o.tty {
		a.runs["console"] = func(ctx context.Context) error {
			if err := c.Run(ctx); err != nil || ctx.Err() != nil {
				return err
			}
			return errEnd // the person has closed the terminal's input
		}
	}
	return nil
}

// userName is who runs the program, as the system knows them.
func userName() string {
	if u, err := user.Current(); err == nil && u.Username != "" {
		return u.Username
	}
	return "me"
}
