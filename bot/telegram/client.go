package telegram

import (
	"context"
	"errors"
	"log/slog"
	"net"
	"net/http"
	"net/url"
	"regexp"
	"strings"
	"sync/atomic"
	"time"

	tg "github.com/go-telegram/bot"
	"github.com/go-telegram/bot/models"

	"pulseloop/pulse"
)

// DefaultAPIURL is the public Bot API.
const DefaultAPIURL = "https://api.telegram.org"

// Config of a Client. Only Token is required.
type Config struct {
	Token  string
	APIURL string            // default DefaultAPIURL; a self-hosted server or a test's
	HTTP   http.RoundTripper // default: a transport of its own
	Log    *slog.Logger
	// CallTimeout bounds one call that is not a long poll; default 20 s.
	CallTimeout time.Duration
}

// Client makes the calls. No error or log line of it contains the token.
type Client struct {
	token   string
	base    string
	api     *tg.Bot
	http    *transport
	log     *slog.Logger
	timeout time.Duration
	botID   string
	name    atomic.Pointer[string]
}

// Command is an entry of the bot's menu: a name without slash, and what it does.
type Command struct {
	Name        string
	Description string
}

var (
	tokenShape   = regexp.MustCompile(`^([0-9]{3,20}):[A-Za-z0-9_-]{10,}$`)
	commandShape = regexp.MustCompile(`^[a-z0-9_]{1,32}$`)
)

// New checks the configuration; it makes no call.
func New(cfg Config) (*Client, error) {
	parts := tokenShape.FindStringSubmatch(cfg.Token)
	if parts == nil {
		return nil, pulse.Invalid("the Telegram bot token does not look like one",
			"it is digits, a colon and letters, as @BotFather prints it; set telegram.token or PULSE_TELEGRAM_TOKEN")
	}
	if cfg.APIURL == "" {
		cfg.APIURL = DefaultAPIURL
	}
	if cfg.Log == nil {
		cfg.Log = slog.New(slog.DiscardHandler)
	}
	if cfg.CallTimeout <= 0 {
		cfg.CallTimeout = 20 * time.Second
	}
	u, err := url.Parse(cfg.APIURL)
	if err != nil || u.Host == "" || (u.Scheme != "https" && u.Scheme != "http") || u.RawQuery != "" || u.User != nil {
		return nil, pulse.Invalid("telegram.api_url is not a base URL", "it is like "+DefaultAPIURL+", or empty")
	}
	if u.Scheme == "http" && !loopback(u.Hostname()) {
		cfg.Log.Warn("the Telegram Bot API is reached without TLS: whoever is on the way reads the bot token", "host", u.Host)
	}
	c := &Client{token: cfg.Token, base: strings.TrimRight(cfg.APIURL, "/"), log: cfg.Log, timeout: cfg.CallTimeout, botID: parts[1]}
	c.http = newTransport(cfg.HTTP)
	c.api, err = tg.New(cfg.Token, tg.WithSkipGetMe(), tg.WithServerURL(c.base), tg.WithHTTPClient(time.Minute, c.http),
		tg.WithErrorsHandler(func(err error) { c.log.Debug("telegram call", "error", c.clean(err)) }))
	if err != nil {
		return nil, pulse.Invalid("the Telegram client cannot be made: "+c.clean(err).Error(), "")
	}
	return c, nil
}

func loopback(host string) bool {
	ip := net.ParseIP(host)
	return host == "localhost" || (ip != nil && ip.IsLoopback())
}

// Source names this bot in inbound updates and their offset: it survives a change of the token's secret part.
func (c *Client) Source() string { return "telegram:" + c.botID }

// Username of the bot without the @, "" until Check has succeeded once.
func (c *Client) Username() string {
	if p := c.name.Load(); p != nil {
		return *p
	}
	return ""
}

// Check asks the platform who the bot is. A refused token is CodeUnauthorized, a platform out of reach CodeUnavailable.
func (c *Client) Check(ctx context.Context) (username string, err error) {
	ctx, cancel := context.WithTimeout(ctx, c.timeout)
	defer cancel()
	ctx, at := withAttempt(ctx)
	me, err := c.api.GetMe(ctx)
	if err != nil {
		return "", c.explain("ask Telegram who the bot is", err, at)
	}
	c.name.Store(&me.Username)
	return me.Username, nil
}

// SetCommands sets the menu that people see when they type a slash.
func (c *Client) SetCommands(ctx context.Context, commands []Command) error {
	list := make([]models.BotCommand, 0, len(commands))
	for _, cmd := range commands {
		if !commandShape.MatchString(cmd.Name) || strings.TrimSpace(cmd.Description) == "" {
			return pulse.Invalid("the command "+cmd.Name+" cannot be shown in Telegram's menu",
				"names are 1 to 32 of a-z, 0-9 and _, with a description")
		}
		list = append(list, models.BotCommand{Command: cmd.Name, Description: clip(clean(cmd.Description, incoming), 256)})
	}
	ctx, cancel := context.WithTimeout(ctx, c.timeout)
	defer cancel()
	ctx, at := withAttempt(ctx)
	if _, err := c.api.SetMyCommands(ctx, &tg.SetMyCommandsParams{Commands: list}); err != nil {
		return c.explain("set the bot's commands", err, at)
	}
	return nil
}

// explain makes an error that people understand.
func (c *Client) explain(doing string, err error, at *attempt) error {
	switch {
	case errors.Is(err, tg.ErrorUnauthorized), errors.Is(err, tg.ErrorNotFound):
		return &pulse.Error{Code: pulse.CodeUnauthorized, Message: "Telegram refuses the bot token",
			Hint: "get the current one from @BotFather (/mybots, API Token) and set telegram.token or PULSE_TELEGRAM_TOKEN",
			Err:  c.clean(err)}
	case errors.Is(err, tg.ErrorBadRequest):
		return &pulse.Error{Code: pulse.CodeInvalid, Message: "cannot " + doing + ": Telegram refuses it", Err: c.clean(err)}
	case at.status() == http.StatusTooManyRequests:
		return &pulse.Error{Code: pulse.CodeRateLimited, Message: "cannot " + doing + ": too many requests",
			Hint: "it is tried again later", Err: c.clean(err)}
	}
	return &pulse.Error{Code: pulse.CodeUnavailable, Message: "cannot " + doing + ": the Bot API does not answer",
		Hint: "check the network and telegram.api_url (" + c.base + ")", Err: c.clean(err)}
}

// cleaned is an error whose text has no token; the chain below it stays reachable for errors.Is and errors.As.
type cleaned struct {
	text string
	err  error
}

func (e *cleaned) Error() string { return e.text }
func (e *cleaned) Unwrap() error { return e.err }

// clean removes the token from an error, also where it hides in the URL of a *url.Error.
func (c *Client) clean(err error) error {
	if err == nil {
		return nil
	}
	var ue *url.Error
	if errors.As(err, &ue) {
		ue.URL = c.strip(ue.URL)
	}
	return &cleaned{text: clip(c.strip(err.Error()), 500), err: err}
}

func (c *Client) strip(s string) string {
	s = strings.ReplaceAll(s, c.token, "[token]")
	s = strings.ReplaceAll(s, url.PathEscape(c.token), "[token]")
	return strings.ReplaceAll(s, url.QueryEscape(c.token), "[token]")
}
