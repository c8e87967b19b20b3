// Package client is the typed client of the API, for the commands, the
// terminal interface, and whoever else speaks to a running pulse.
//
// It owns requests, the reading of errors back into pulse.Error, and the
// reconnecting of event streams. It decides and stores nothing. A Client is
// safe for use by many goroutines.
package client

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"syscall"
	"time"

	"pulseloop/api/wire"
	"pulseloop/pulse"
)

// mostAnswer bounds an answer: far above what a session grows to.
const mostAnswer = 256 << 20

// Config says where the server is. Zero fields take defaults.
type Config struct {
	BaseURL string       // http://127.0.0.1:3002 if empty
	Token   string       // sent as a bearer token if there is one
	Origin  pulse.Origin // which surface this is: api (default), cli or mcp
	HTTP    *http.Client // without a total timeout; contexts bound each call

	// Backoff is the longest wait between two attempts to reconnect: 5 s.
	Backoff time.Duration
	// Reconnected, if set, is told of every lost connection that Follow replaces.
	Reconnected func(cause error)
}

// Client speaks to one server.
type Client struct {
	cfg  Config
	base *url.URL
}

// New checks the configuration.
func New(cfg Config) (*Client, error) {
	if cfg.BaseURL == "" {
		cfg.BaseURL = "http://127.0.0.1:3002"
	}
	base, err := url.Parse(strings.TrimSuffix(cfg.BaseURL, "/"))
	if err != nil || (base.Scheme != "http" && base.Scheme != "https") || base.Host == "" || base.RawQuery != "" || base.User != nil {
		return nil, &pulse.Error{Code: pulse.CodeInvalid, Message: "the server address " + strconv.Quote(cfg.BaseURL) + " cannot be used",
			Hint: "write it like http://127.0.0.1:3002", Err: err}
	}
	if cfg.HTTP == nil {
		// A redirect could carry the token elsewhere; the API has none.
		cfg.HTTP = &http.Client{CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }}
	}
	if cfg.Backoff <= 0 {
		cfg.Backoff = 5 * time.Second
	}
	return &Client{cfg: cfg, base: base}, nil
}

// Start begins a goal.
func (c *Client) Start(ctx context.Context, r wire.Start) (wire.Session, error) {
	var out wire.SessionReply
	err := c.do(ctx, http.MethodPost, "/api/pulse/start", nil, r, &out)
	return out.Session, err
}

// Get reads a session with its iterations and its open gate. Here and below,
// id may be the end of an id, as long as one session alone has it.
func (c *Client) Get(ctx context.Context, id string) (wire.SessionDetail, error) {
	var out wire.SessionDetail
	err := c.do(ctx, http.MethodGet, session(id, ""), nil, nil, &out)
	return out, err
}

// Filter selects sessions; zero fields do not filter.
type Filter struct {
	Statuses []pulse.SessionStatus
	Project  string // name or id
	Limit    int
}

// List lists sessions, newest first.
func (c *Client) List(ctx context.Context, f Filter) ([]wire.Session, error) {
	q := url.Values{}
	for _, s := range f.Statuses {
		q.Add("status", string(s))
	}
	if f.Project != "" {
		q.Set("project", f.Project)
	}
	if f.Limit != 0 {
		q.Set("limit", strconv.Itoa(f.Limit))
	}
	var out wire.SessionList
	err := c.do(ctx, http.MethodGet, "/api/pulse", q, nil, &out)
	return out.Sessions, err
}

// Pause ends a session after its current iteration.
func (c *Client) Pause(ctx context.Context, id string) (wire.Session, error) {
	return c.change(ctx, session(id, "/pause"), nil)
}

// Abort stops a session for good.
func (c *Client) Abort(ctx context.Context, id string) (wire.Session, error) {
	return c.change(ctx, session(id, "/abort"), nil)
}

// Resume lets a session go on, with words for it or without.
func (c *Client) Resume(ctx context.Context, id, answer string) (wire.Session, error) {
	return c.change(ctx, session(id, "/resume"), wire.Resume{Answer: answer})
}

// Answer resolves a session's open gate.
func (c *Client) Answer(ctx context.Context, id string, a wire.Answer) (wire.Session, error) {
	return c.change(ctx, session(id, "/answer"), a)
}

// Say says something to a session, and answers what it was taken as.
func (c *Client) Say(ctx context.Context, id, text string) (wire.MessageReply, error) {
	var out wire.MessageReply
	err := c.do(ctx, http.MethodPost, "/api/sessions/"+url.PathEscape(id)+"/message", nil, wire.Message{Text: text}, &out)
	return out, err
}

// Events reads a session's events after seq, one page.
func (c *Client) Events(ctx context.Context, id string, after int64) (wire.EventList, error) {
	var out wire.EventList
	err := c.do(ctx, http.MethodGet, session(id, "/events"), url.Values{"after": {strconv.FormatInt(after, 10)}}, nil, &out)
	return out, err
}

// Turns reads what was said, thought and done in a session.
func (c *Client) Turns(ctx context.Context, id string) ([]wire.Turn, error) {
	var out wire.TurnList
	err := c.do(ctx, http.MethodGet, session(id, "/turns"), nil, nil, &out)
	return out.Turns, err
}

// Prompt reads the exact prompt of an iteration; 0 means the latest.
func (c *Client) Prompt(ctx context.Context, id string, iteration int) (string, error) {
	q := url.Values{}
	if iteration != 0 {
		q.Set("iteration", strconv.Itoa(iteration))
	}
	var out string
	err := c.do(ctx, http.MethodGet, session(id, "/prompt"), q, nil, &out)
	return out, err
}

// Projects lists the registered projects.
func (c *Client) Projects(ctx context.Context) ([]wire.Project, error) {
	var out wire.ProjectList
	err := c.do(ctx, http.MethodGet, "/api/projects", nil, nil, &out)
	return out.Projects, err
}

// AddProject registers the repository at a path on the server's machine.
func (c *Client) AddProject(ctx context.Context, name, path string) (wire.Project, error) {
	var out wire.ProjectReply
	err := c.do(ctx, http.MethodPost, "/api/projects", nil, wire.NewProject{Name: name, Path: path}, &out)
	return out.Project, err
}

// Pair makes a one-time pairing code; an empty role means operator.
func (c *Client) Pair(ctx context.Context, role pulse.OperatorRole) (wire.PairReply, error) {
	var out wire.PairReply
	err := c.do(ctx, http.MethodPost, "/api/pair", nil, wire.Pair{Role: role}, &out)
	return out, err
}

// Health answers nil when the server is there and ready for work.
func (c *Client) Health(ctx context.Context) error {
	return c.do(ctx, http.MethodGet, "/readyz", nil, nil, &wire.Status{})
}

func (c *Client) change(ctx context.Context, path string, body any) (wire.Session, error) {
	var out wire.SessionReply
	err := c.do(ctx, http.MethodPost, path, nil, body, &out)
	return out.Session, err
}

func session(id, verb string) string { return "/api/pulse/" + url.PathEscape(id) + verb }

// do sends one request and reads its answer into out: JSON, or plain text
// into a *string.
func (c *Client) do(ctx context.Context, method, path string, q url.Values, body, out any) error {
	u := c.base.String() + path
	if len(q) > 0 {
		u += "?" + q.Encode()
	}
	var send io.Reader
	if body != nil {
		b, err := json.Marshal(body)
		if err != nil {
			return fmt.Errorf("encode request: %w", err)
		}
		send = bytes.NewReader(b)
	}
	req, err := http.NewRequestWithContext(ctx, method, u, send)
	if err != nil {
		return fmt.Errorf("make request: %w", err)
	}
	req.Header = c.header()
	if body != nil {
		req.Header.Set("Content-Type", "application/json")
	}
	res, err := c.cfg.HTTP.Do(req)
	if err != nil {
		return c.unreached(ctx, err)
	}
	defer res.Body.Close()
	b, err := io.ReadAll(io.LimitReader(res.Body, mostAnswer))
	if err != nil {
		return c.unreached(ctx, err)
	}
	if res.StatusCode >= http.StatusMultipleChoices {
		return c.refused(res.StatusCode, b)
	}
	if text, ok := out.(*string); ok {
		*text = string(b)
		return nil
	}
	if err := json.Unmarshal(b, out); err != nil {
		return c.stranger(err)
	}
	return nil
}

func (c *Client) header() http.Header {
	h := http.Header{}
	if c.cfg.Token != "" {
		h.Set("Authorization", "Bearer "+c.cfg.Token)
	}
	if c.cfg.Origin != "" {
		h.Set("Pulse-Client", string(c.cfg.Origin))
	}
	return h
}

// unreached says in plain words why there was no answer.
func (c *Client) unreached(ctx context.Context, err error) error {
	if ctx.Err() != nil {
		return ctx.Err()
	}
	e := &pulse.Error{Code: pulse.CodeUnavailable, Message: "the server at " + c.base.String() + " cannot be reached",
		Hint: "check the address and the network", Err: err}
	if errors.Is(err, syscall.ECONNREFUSED) {
		e.Message, e.Hint = "nothing runs at "+c.base.String(), "start it with `pulse up`"
	}
	return e
}

// refused turns an error answer back into the error it was made of.
func (c *Client) refused(status int, b []byte) error {
	var body wire.Error
	if json.Unmarshal(b, &body) != nil || body.Error.Code == "" {
		return c.stranger(fmt.Errorf("status %d", status))
	}
	return &pulse.Error{Code: body.Error.Code, Message: body.Error.Message, Hint: body.Error.Hint}
}

// stranger is for answers that pulse does not give.
func (c *Client) stranger(err error) error {
	return &pulse.Error{Code: pulse.CodeUnavailable, Message: "what answers at " + c.base.String() + " is not pulse",
		Hint: "check the address, and what else listens there", Err: err}
}
