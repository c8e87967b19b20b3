// Package console is the conversation in a terminal, for whoever has no bot
// yet: an adapter like those of the chat platforms. A typed line is an update
// that is committed before anything is made of it; what is told comes through
// the outbox and is printed here.
//
// It never runs a command itself, never reads a key before the line is
// complete, and shows agents' texts without the control characters in them.
// Send, Say, Print and Run may be used at once; one console owns one terminal.
package console

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"strconv"
	"strings"
	"sync"
	"time"

	"pulseloop/bot"
	"pulseloop/notify"
	"pulseloop/pulse"
)

// Config is what a console works with. Zero fields of the last group take
// defaults.
type Config struct {
	In     io.Reader
	Out    io.Writer
	TTY    bool       // Out is a terminal that understands ANSI sequences
	Width  func() int // of the terminal, in cells
	Intake bot.Intake

	ConsoleID string // the conversation: 'local'
	User      string // who types, as the platform's user id: 'me'
	Name      string // to show: User
	Boot      string // tells the lines of this run from those of others: a fresh id
	Clock     func() time.Time
	Log       *slog.Logger
}

// Console is the adapter: receiver, decoder and sender in one.
type Console struct {
	cfg    Config
	source string

	intake sync.Mutex // numbers lines in the order they are committed
	lines  int64

	mu      sync.Mutex // the screen
	screen  screen
	choices []pulse.Button
	settled map[pulse.SessionID]time.Time
	sent    int
}

// maxLine bounds a typed or pasted line, in bytes.
const maxLine = 256 << 10

var (
	_ bot.Decoder   = (*Console)(nil)
	_ notify.Sender = (*Console)(nil)
)

// New returns a console.
func New(cfg Config) *Console {
	if cfg.Clock == nil {
		cfg.Clock = time.Now
	}
	if cfg.Log == nil {
		cfg.Log = slog.New(slog.DiscardHandler)
	}
	if cfg.Width == nil {
		cfg.Width = func() int { return 0 }
	}
	cfg.ConsoleID = cmp.Or(cfg.ConsoleID, "local")
	cfg.User = cmp.Or(cfg.User, "me")
	cfg.Name = cmp.Or(cfg.Name, cfg.User)
	cfg.Boot = cmp.Or(cfg.Boot, pulse.NewUUID(cfg.Clock()))
	return &Console{cfg: cfg, source: "console:" + cfg.Boot, settled: map[pulse.SessionID]time.Time{},
		screen: screen{out: cfg.Out, tty: cfg.TTY, width: cfg.Width, steps: map[string]string{}}}
}

// Address is where the console's conversation takes place.
func (c *Console) Address() pulse.Address {
	return pulse.Address{Platform: pulse.PlatformConsole, Chat: c.cfg.ConsoleID}
}

// Run reads lines until the input ends or ctx does. On a terminal a read
// cannot be taken back: its goroutine then ends with the next line.
func (c *Console) Run(ctx context.Context) error {
	if c.cfg.Intake == nil || c.cfg.In == nil {
		return errors.New("run console: it has no input or no intake")
	}
	c.mu.Lock()
	c.screen.prompt()
	c.mu.Unlock()
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	lines, end := make(chan typed), make(chan error, 1)
	go func() { end <- reader{in: c.cfg.In, tty: c.cfg.TTY}.run(ctx, lines) }()
	for {
		select {
		case <-ctx.Done():
			c.release(end)
			return nil
		case l := <-lines:
			if err := c.take(ctx, l); err != nil && ctx.Err() == nil {
				return err
			}
		case err := <-end:
			c.mu.Lock()
			c.screen.leave()
			c.mu.Unlock()
			if err != nil && ctx.Err() == nil {
				return fmt.Errorf("read from the terminal: %w", err)
			}
			return nil
		}
	}
}

// release ends the reader where the input can be told to.
func (c *Console) release(end <-chan error) {
	c.mu.Lock()
	c.screen.leave()
	c.mu.Unlock()
	if d, ok := c.cfg.In.(interface{ SetReadDeadline(time.Time) error }); ok && d.SetReadDeadline(time.Unix(1, 0)) == nil {
		<-end
	}
}

// take makes an update of what was typed. An empty line only redraws.
func (c *Console) take(ctx context.Context, l typed) error {
	c.mu.Lock()
	c.screen.entered(l.raw)
	c.mu.Unlock()
	if l.tooLong {
		c.Print(fmt.Sprintf("⚠️ That line is longer than %d KB and was not taken. Put the long part into a file and name the file.", maxLine>>10))
		return nil
	}
	if l.cut {
		c.Print(fmt.Sprintf("⚠️ A terminal takes at most %d bytes of a line, so that one may lack its end and was not taken. Put line feeds into it, or put it into a file and name the file.", mostTyped))
		return nil
	}
	if strings.TrimSpace(l.text) == "" {
		return nil
	}
	return c.commit(ctx, l.text)
}

// Say commits a line as if it had been typed, and shows it.
func (c *Console) Say(ctx context.Context, text string) error {
	c.mu.Lock()
	c.screen.echo(notify.Clean(text))
	c.mu.Unlock()
	return c.commit(ctx, text)
}

// payload is an update as it is stored.
type payload struct {
	Console string    `json:"console"`
	User    string    `json:"user"`
	Name    string    `json:"name"`
	Text    string    `json:"text,omitempty"`
	Press   string    `json:"press,omitempty"`
	At      time.Time `json:"at"`
}

// commit stores a line before anything is made of it, trying until it is
// stored or ctx ends: what was typed must not vanish in a short outage.
func (c *Console) commit(ctx context.Context, text string) error {
	c.intake.Lock()
	defer c.intake.Unlock()
	now := c.cfg.Clock().UTC()
	p := payload{Console: c.cfg.ConsoleID, User: c.cfg.User, Name: c.cfg.Name, Text: text, At: now}
	if data, ok := c.chosen(text); ok {
		p.Text, p.Press = "", data
	}
	raw, err := json.Marshal(p)
	if err != nil {
		return fmt.Errorf("write an update: %w", err)
	}
	c.lines++
	in := pulse.Inbound{ID: pulse.InboundID(pulse.NewUUID(now)), Platform: pulse.PlatformConsole, Source: c.source,
		UpdateID: strconv.FormatInt(c.lines, 10), Order: c.lines, Payload: raw, ReceivedAt: now}
	for wait := 100 * time.Millisecond; ; wait = min(2*wait, 5*time.Second) {
		_, err := c.cfg.Intake.Receive(ctx, c.source, []pulse.Inbound{in}, "")
		if err == nil {
			return nil
		}
		if ctx.Err() != nil {
			return fmt.Errorf("store a typed line: %w", err)
		}
		c.cfg.Log.Error("store a typed line", "err", err)
		if wait == 100*time.Millisecond {
			c.Print("⚠️ The database does not take this line yet; trying on.")
		}
		timer := time.NewTimer(wait)
		select {
		case <-ctx.Done():
			timer.Stop()
		case <-timer.C:
		}
	}
}

// chosen reads the number of a button that is on the screen. A button is
// pressed once.
func (c *Console) chosen(text string) (data string, ok bool) {
	n, err := strconv.Atoi(strings.TrimSpace(text))
	c.mu.Lock()
	defer c.mu.Unlock()
	if err != nil || n < 1 || n > len(c.choices) {
		return "", false
	}
	data = c.choices[n-1].Data
	c.choices = nil
	return data, true
}

// Decode implements bot.Decoder.
func (c *Console) Decode(in pulse.Inbound) bot.Event {
	var p payload
	if err := json.Unmarshal(in.Payload, &p); err != nil || p.Console == "" || p.User == "" {
		return bot.Event{Kind: bot.KindIgnored, Platform: pulse.PlatformConsole, Note: "not a line of a console"}
	}
	e := bot.Event{Kind: bot.KindMessage, Platform: pulse.PlatformConsole, Private: true, MessageID: in.UpdateID, Text: p.Text, At: p.At,
		Address: pulse.Address{Platform: pulse.PlatformConsole, Chat: p.Console}, Sender: bot.Sender{UserID: p.User, Name: p.Name}}
	if p.Press != "" {
		e.Kind, e.Data = bot.KindPress, p.Press
	}
	return e
}
