package main

import (
	"context"
	"fmt"
	"net/http"
	"net/url"
	"time"

	"pulseloop/bot"
	"pulseloop/bot/telegram"
	"pulseloop/pulse"
)

// wireTelegram adds the bot, if there is a token. In webhook mode it answers
// with the handler to mount.
func (a *app) wireTelegram(ctx context.Context) (map[string]http.Handler, error) {
	t := a.cfg.Telegram
	if t.Token == "" {
		return nil, nil
	}
	client, err := telegram.New(telegram.Config{Token: t.Token.Reveal(), APIURL: t.APIURL, Log: a.log})
	if err != nil {
		return nil, err
	}
	if err := a.greetTelegram(ctx, client); err != nil {
		return nil, err
	}
	a.adapters = append(a.adapters, bot.Adapter{Platform: pulse.PlatformTelegram, Decoder: client.Decoder(), Presses: client, Topics: client})
	a.senders = append(a.senders, telegram.NewSender(client, telegram.SenderConfig{Log: a.log}))
	if t.WebhookURL == "" {
		a.runs["telegram"] = telegram.NewPoller(client, a.store, telegram.PollerConfig{Log: a.log}).Run
		return nil, nil
	}
	hook, err := telegram.NewWebhook(client, a.store, telegram.WebhookConfig{URL: t.WebhookURL, Secret: t.WebhookSecret.Reveal(), Log: a.log})
	if err != nil {
		return nil, err
	}
	a.runs["telegram webhook"] = a.registering(hook)
	u, err := url.Parse(t.WebhookURL)
	if err != nil {
		return nil, fmt.Errorf("read telegram.webhook_url: %w", err)
	}
	return map[string]http.Handler{u.Path: hook}, nil
}

// greetTelegram checks the token while somebody is looking, and sets the
// bot's menu. Telegram out of reach is no reason not to start: the poller
// tries again.
func (a *app) greetTelegram(ctx context.Context, client *telegram.Client) error {
	name, err := client.Check(ctx)
	switch pulse.CodeOf(err) {
	case "":
		a.o.printf("Telegram: @%s\n", name)
	case pulse.CodeUnavailable, pulse.CodeInternal:
		a.log.Warn("Telegram is out of reach; trying again", "err", err)
		return nil
	default:
		return err
	}
	var menu []telegram.Command
	for _, c := range bot.Commands() {
		if !c.Hide {
			menu = append(menu, telegram.Command{Name: c.Name, Description: c.Help})
		}
	}
	if err := client.SetCommands(ctx, menu); err != nil {
		a.log.Warn("set the bot's menu", "err", err)
	}
	return nil
}

// registering tells Telegram where to deliver, until it has taken it.
func (a *app) registering(hook *telegram.Webhook) func(context.Context) error {
	return func(ctx context.Context) error {
		for wait := time.Second; ; wait = min(2*wait, time.Minute) {
			err := hook.Register(ctx)
			if err == nil || ctx.Err() != nil {
				return nil
			}
			if c := pulse.CodeOf(err); c == pulse.CodeUnauthorized || c == pulse.CodeInvalid {
				return err
			}
			a.log.Warn("register the webhook; trying again", "err", err)
			select {
			case <-ctx.Done():
				return nil
			case <-time.After(wait):
			}
		}
	}
}
