package console

import (
	"context"
	"fmt"
	"strings"
	"time"

	"pulseloop/notify"
	"pulseloop/pulse"
)

// Platform implements notify.Sender.
func (c *Console) Platform() pulse.Platform { return pulse.PlatformConsole }

// Ready implements notify.Sender: a terminal has no limits.
func (c *Console) Ready(pulse.Address, bool) time.Time { return time.Time{} }

// Send implements notify.Sender. What is live is shown in one line that
// changes in place; the rest is printed.
func (c *Console) Send(_ context.Context, n pulse.Notice, _ []string) notify.Delivery {
	if n.Address != c.Address() {
		return notify.Delivery{Outcome: notify.Permanent, Err: fmt.Errorf("console %q is not open here", n.Address.Chat)}
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	var err error
	switch {
	case c.outdated(n): // taken note of, not shown
	case notify.Closed(n):
		err = c.screen.over(n.Slot)
	case n.Kind == pulse.NoticeProgress:
		err = c.screen.progress(n.Slot, notify.Clean(n.Message.Plain()))
	default:
		if n.Kind != pulse.NoticeReply {
			c.settle(n)
		}
		err = c.screen.print(c.rendered(n), n.Kind != pulse.NoticeReply)
	}
	if err != nil {
		return notify.Delivery{Outcome: notify.Permanent, Err: fmt.Errorf("write to the terminal: %w", err)}
	}
	id := n.ExternalID
	if id == "" {
		c.sent++
		id = fmt.Sprintf("%s/%d", c.cfg.Boot, c.sent)
	}
	return notify.Delivery{Outcome: notify.Sent, ExternalID: id}
}

// mostSettled bounds what the console remembers of outcomes.
const mostSettled = 1000

// settle remembers when a session had its latest outcome.
func (c *Console) settle(n pulse.Notice) {
	if len(c.settled) >= mostSettled {
		clear(c.settled)
	}
	if n.CreatedAt.After(c.settled[n.SessionID]) {
		c.settled[n.SessionID] = n.CreatedAt
	}
}

// outdated reports whether a live state is from before an outcome that is on
// the screen: outcomes go first, and what came before them is no longer news.
func (c *Console) outdated(n pulse.Notice) bool {
	return n.Kind == pulse.NoticeProgress && !notify.Closed(n) && n.CreatedAt.Before(c.settled[n.SessionID])
}

// Print adds text above the line that is typed, for what is no message of a
// session: the program's own words.
func (c *Console) Print(text string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if err := c.screen.print(strings.TrimRight(text, "\n"), false); err != nil {
		c.cfg.Log.Debug("write to the terminal", "err", err)
	}
}

// ansi are the sequences of the styles.
var ansi = map[pulse.Style]string{pulse.StyleBold: "\x1b[1m", pulse.StyleItalic: "\x1b[3m", pulse.StyleCode: "\x1b[36m",
	pulse.StylePre: "\x1b[2m", pulse.StyleQuote: "\x1b[2m"}

// inTerminal words what only a chat has: here there is no message to reply to.
var inTerminal = strings.NewReplacer(
	"reply to this message or send ", "send ",
	"Reply to this message with the answer, or send ", "Type the answer, or send ",
	"Or reply with the word, or send ", "Or type the word, or send ",
)

// rendered is a message as it is printed; its buttons get numbers, and are
// what a typed number means from now on.
func (c *Console) rendered(n pulse.Notice) string {
	var b strings.Builder
	for _, s := range n.Message.Spans {
		text := inTerminal.Replace(notify.Clean(s.Text))
		if s.Style == pulse.StyleQuote {
			text = "│ " + strings.ReplaceAll(text, "\n", "\n│ ")
		}
		if code := ansi[s.Style]; c.cfg.TTY && code != "" {
			// Each line for itself: a style must not run into the indentation.
			text = code + strings.ReplaceAll(text, "\n", "\x1b[0m\n"+code) + "\x1b[0m"
		}
		b.WriteString(text)
	}
	var choices []pulse.Button
	for _, row := range n.Message.Buttons {
		for i, btn := range row {
			choices = append(choices, btn)
			sep := "   "
			if i == 0 {
				sep = "\n"
			}
			fmt.Fprintf(&b, "%s[%d] %s", sep, len(choices), strings.Join(strings.Fields(notify.Clean(btn.Label)), " "))
		}
	}
	if len(choices) > 0 {
		c.choices = choices
		b.WriteString("\nType a number to choose.")
	}
	text := strings.ReplaceAll(strings.TrimRight(b.String(), "\n"), "\n", "\n   ")
	return strings.ReplaceAll(text, "\n   \n", "\n\n")
}
