package telegram

import (
	"errors"
	"net/http"
	"strconv"
	"strings"
	"time"

	tg "github.com/go-telegram/bot"

	"pulseloop/notify"
)

// failure is a failed call, classed. Telegram has no error codes beyond HTTP's: the description is all there is to go by.
type failure struct {
	outcome  notify.Outcome
	wait     time.Duration
	moved    string // new chat id
	noTopic  bool   // the topic is gone, or closed to us
	entities bool   // the formatting was refused, not the text
	err      error
}

// fallbackWait is used for a 429 that names no time.
const fallbackWait = 5 * time.Second

func (c *Client) classify(err error, at *attempt) failure {
	f := failure{err: c.clean(err)}
	text := strings.ToLower(err.Error())
	var many *tg.TooManyRequestsError
	var moved *tg.MigrateError
	switch {
	case errors.As(err, &many):
		f.outcome, f.wait = notify.RetryAt, time.Duration(many.RetryAfter)*time.Second
	case errors.As(err, &moved):
		f.outcome, f.moved = notify.Permanent, strconv.FormatInt(int64(moved.MigrateToChatID), 10)
	case errors.Is(err, tg.ErrorForbidden):
		f.outcome = notify.Refused
	case errors.Is(err, tg.ErrorUnauthorized), errors.Is(err, tg.ErrorNotFound):
		// The token, not the message, is at fault: the message waits for a better one.
		f.outcome = notify.Transient
	case errors.Is(err, tg.ErrorBadRequest):
		f.badRequest(text)
	case at.status() == http.StatusTooManyRequests:
		f.outcome, f.wait = notify.RetryAt, at.retryAfter()
	case at.uncertain():
		f.outcome = notify.Ambiguous
	default:
		f.outcome = notify.Transient
	}
	if f.outcome == notify.RetryAt && f.wait <= 0 {
		f.wait = fallbackWait
	}
	return f
}

func (f *failure) badRequest(text string) {
	f.outcome = notify.Permanent
	switch {
	case strings.Contains(text, "message is not modified"):
		f.outcome = notify.Sent
	case contains(text, "message to edit not found", "message can't be edited", "message_id_invalid", "no text in the message to edit"):
		f.outcome = notify.LostEdit
	case contains(text, "thread not found", "topic_closed", "topic_deleted", "topic_id_invalid"):
		f.noTopic = true
	case contains(text, "not enough rights to send", "no rights to send", "chat_write_forbidden", "chat_restricted", "bot is not a member"):
		f.outcome = notify.Refused // rights come and go; what was to be said waits
	case strings.Contains(text, "entit"):
		f.entities = true
	}
}

func contains(text string, parts ...string) bool {
	for _, p := range parts {
		if strings.Contains(text, p) {
			return true
		}
	}
	return false
}
