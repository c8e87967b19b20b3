package e2etest

import (
	"strings"
	"testing"

	"pulseloop/bot/telegram/telegramtest"
)

// Person is somebody in a chat with the bot. What they hear is what the bot wrote after they last spoke.
type Person struct {
	*telegramtest.User
	Chat *telegramtest.Chat
	t    testing.TB
	said int // the id of what was last said
}

// NewPerson opens a private chat with the bot.
func NewPerson(t testing.TB, tg *telegramtest.Server, name string) *Person {
	u := tg.User(name)
	return &Person{User: u, Chat: u.Private(), t: t}
}

// In is the same person in another chat.
func (p *Person) In(c *telegramtest.Chat) *Person { return &Person{User: p.User, Chat: c, t: p.t} }

// Say writes in the chat.
func (p *Person) Say(text string) { p.said = p.Chat.Say(p.User, text).ID }

// Reply answers a message.
func (p *Person) Reply(to telegramtest.Message, text string) {
	p.said = p.Chat.Reply(p.User, to.ID, text).ID
}

// Press presses a button of a message; what the bot says from then on is heard.
func (p *Person) Press(m telegramtest.Message, button string) *telegramtest.Callback {
	p.t.Helper()
	all := p.Chat.Messages()
	p.said = all[len(all)-1].ID
	cb, err := p.Chat.Press(p.User, m.ID, button)
	if err != nil {
		p.t.Fatal(err)
	}
	return cb
}

// Pair sends the code and waits for the welcome.
func (p *Person) Pair(code string) {
	p.t.Helper()
	p.Say("/pair " + code)
	p.Hears("Paired. Hello")
}

// Hears waits for a message with all the parts in it, after what was last said.
func (p *Person) Hears(parts ...string) telegramtest.Message {
	p.t.Helper()
	m, err := p.Chat.AwaitMessage(Context(p.t), func(m telegramtest.Message) bool {
		return m.ID > p.said && contains(m.Text, parts)
	})
	if err != nil {
		p.t.Fatalf("%s waits for %q: %v", p.FirstName, parts, err)
	}
	return m
}

func contains(text string, parts []string) bool {
	for _, part := range parts {
		if !strings.Contains(text, part) {
			return false
		}
	}
	return true
}

// Heard is how many messages of the bot begin like this, in the whole chat.
func (p *Person) Heard(prefix string) int {
	n := 0
	for _, m := range p.Chat.FromBot() {
		if strings.HasPrefix(m.Text, prefix) {
			n++
		}
	}
	return n
}
