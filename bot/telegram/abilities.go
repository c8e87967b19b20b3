package telegram

import (
	"context"
	"errors"
	"strconv"
	"strings"

	tg "github.com/go-telegram/bot"

	"pulseloop/bot"
	"pulseloop/pulse"
)

// The adapter's parts fit the seams they are made for.
var (
	_ bot.Decoder      = (*Decoder)(nil)
	_ bot.Acknowledger = (*Client)(nil)
	_ bot.TopicMaker   = (*Client)(nil)
)

// Acknowledge implements bot.Acknowledger: it ends the waiting sign on a pressed button. An answer that comes too late is no loss.
func (c *Client) Acknowledge(ctx context.Context, e bot.Event, text string) {
	if e.CallbackID == "" {
		return
	}
	ctx, cancel := context.WithTimeout(ctx, c.timeout)
	defer cancel()
	if _, err := c.api.AnswerCallbackQuery(ctx, &tg.AnswerCallbackQueryParams{CallbackQueryID: e.CallbackID,
		Text: clip(clean(text, outgoing), 200)}); err != nil {
		c.log.Debug("a button press could not be acknowledged", "error", c.clean(err))
	}
}

// OpenTopic implements bot.TopicMaker. Only supergroups with topics have them, and only where the bot may make some; everywhere
// else, and inside a topic, ok is false.
func (c *Client) OpenTopic(ctx context.Context, in pulse.Address, title string) (topic pulse.Address, ok bool, err error) {
	if in.Platform != pulse.PlatformTelegram || in.Thread != "" || !strings.HasPrefix(in.Chat, "-100") {
		return pulse.Address{}, false, nil
	}
	title = strings.TrimSpace(clip(strings.Join(strings.Fields(clean(title, incoming)), " "), 128))
	if title == "" {
		title = "pulse"
	}
	ctx, cancel := context.WithTimeout(ctx, c.timeout)
	defer cancel()
	ctx, at := withAttempt(ctx)
	made, err := c.api.CreateForumTopic(ctx, &tg.CreateForumTopicParams{ChatID: in.Chat, Name: title})
	switch {
	case err == nil:
		in.Thread = strconv.Itoa(made.MessageThreadID)
		return in, true, nil
	case errors.Is(err, tg.ErrorBadRequest), errors.Is(err, tg.ErrorForbidden):
		c.log.Info("no topic was opened", "error", c.clean(err))
		return pulse.Address{}, false, nil
	}
	return pulse.Address{}, false, c.explain("open a topic", err, at)
}
