package telegramtest

import (
	"bytes"
	"context"
	"encoding/json"
	"net/http"
	"net/url"
	"regexp"
	"slices"
	"time"
)

// firstUpdate is the id of the first update; the platform begins anywhere.
const firstUpdate = 730000001

// update is one entry of the bot's queue.
type update struct {
	id   int64
	kind string
	body map[string]any
}

// updateQueue holds what the bot has not confirmed, and who is fetching it.
type updateQueue struct {
	next    int64
	pending []update
	history []update // confirmed ones, for duplicates
	allowed []string
	poller  chan struct{} // closed when another getUpdates takes over
	repeat  int
	reverse bool
	webhook webhook
}

type webhook struct {
	url, secret string
	lastError   string
	lastAt      time.Time
}

// kinds that are delivered only when asked for by name.
var optional = []string{"chat_member", "message_reaction", "message_reaction_count"}

// push queues an update, unless the bot did not ask for its kind. The lock must be held.
func (s *Server) push(kind string, payload any) int64 {
	q := &s.queue
	if len(q.allowed) > 0 && !slices.Contains(q.allowed, kind) || len(q.allowed) == 0 && slices.Contains(optional, kind) {
		s.wake()
		return 0
	}
	id := q.next
	q.next++
	q.pending = append(q.pending, update{id: id, kind: kind, body: map[string]any{"update_id": id, kind: payload}})
	s.wake()
	return id
}

// Push queues any update, for kinds and shapes that are not modelled. It returns the update's id, 0 if the bot did not ask for the kind.
func (s *Server) Push(kind string, payload any) int64 {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.push(kind, payload)
}

// Pending are the ids of updates that were not confirmed.
func (s *Server) Pending() []int64 {
	s.mu.Lock()
	defer s.mu.Unlock()
	var ids []int64
	for _, u := range s.queue.pending {
		ids = append(ids, u.id)
	}
	return ids
}

// RepeatUpdates puts the last n confirmed updates in front of the next batch: duplicates, as after a lost confirmation.
func (s *Server) RepeatUpdates(n int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.queue.repeat = n
	s.wake()
}

// ReverseUpdates delivers the next batch newest first.
func (s *Server) ReverseUpdates() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.queue.reverse = true
}

// ExpireUpdates drops what the bot has not fetched, as the platform does after 24 hours, and answers how many there were.
func (s *Server) ExpireUpdates() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	n := len(s.queue.pending)
	s.queue.pending = nil
	s.wake()
	return n
}

// RenumberUpdates gives the next update another id, as the platform does after a week without any.
func (s *Server) RenumberUpdates(next int64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.queue.next = next
}

// Polling says whether a getUpdates waits right now.
func (s *Server) Polling() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.queue.poller != nil
}

// getUpdates follows the real rules: an offset confirms what is below it, the newer of two callers wins, the older is told 409.
func (s *Server) getUpdates(ctx context.Context, p params) answer {
	s.mu.Lock()
	defer s.mu.Unlock()
	q := &s.queue
	if q.webhook.url != "" {
		return refuse(http.StatusConflict,
			"Conflict: can't use getUpdates method while webhook is active; use deleteWebhook to delete the webhook first")
	}
	if err := p.object("allowed_updates", &q.allowed); err != nil {
		return bad("can't parse allowed updates: %v", err)
	}
	if q.poller != nil {
		close(q.poller)
	}
	mine := make(chan struct{})
	q.poller = mine
	defer func() {
		if q.poller == mine {
			q.poller = nil
			s.wake()
		}
	}()
	s.wake()
	q.confirm(int64(p.number("offset")))
	limit := p.number("limit")
	if limit <= 0 || limit > 100 {
		limit = 100
	}
	deadline := time.NewTimer(time.Duration(min(p.number("timeout"), 50)) * time.Second)
	defer deadline.Stop()
	for {
		if batch := q.batch(limit); len(batch) > 0 {
			return done(batch)
		}
		changed := s.changed
		s.mu.Unlock()
		var end answer
		ended := true
		select {
		case <-changed:
			ended = false
		case <-deadline.C:
			end = done([]any{})
		case <-ctx.Done():
			end = done([]any{})
		case <-mine:
			end = refuse(http.StatusConflict,
				"Conflict: terminated by other getUpdates request; make sure that only one bot instance is running")
		}
		s.mu.Lock()
		if ended {
			return end
		}
		// The other may have closed mine together with the change that woke us.
		select {
		case <-mine:
			return refuse(http.StatusConflict,
				"Conflict: terminated by other getUpdates request; make sure that only one bot instance is running")
		default:
		}
	}
}

func (q *updateQueue) confirm(offset int64) {
	if offset < 0 {
		keep := int(min(-offset, int64(len(q.pending))))
		q.history = append(q.history, q.pending[:len(q.pending)-keep]...)
		q.pending = q.pending[len(q.pending)-keep:]
		return
	}
	for len(q.pending) > 0 && q.pending[0].id < offset {
		q.history = append(q.history, q.pending[0])
		q.pending = q.pending[1:]
	}
}

func (q *updateQueue) batch(limit int) []map[string]any {
	var out []map[string]any
	if n := min(q.repeat, len(q.history)); n > 0 {
		for _, u := range q.history[len(q.history)-n:] {
			out = append(out, u.body)
		}
		q.repeat = 0
	}
	for _, u := range q.pending {
		if len(out) < limit {
			out = append(out, u.body)
		}
	}
	if q.reverse && len(out) > 1 {
		slices.Reverse(out)
		q.reverse = false
	}
	return out
}

var secretShape = regexp.MustCompile(`^[A-Za-z0-9_-]{1,256}$`)

func (s *Server) setWebhook(p params) answer {
	target := p.str("url")
	if target == "" {
		return s.deleteWebhook(p)
	}
	u, err := url.Parse(target)
	// The real one insists on HTTPS; loopback is let through, nothing else, so that a test cannot leave this machine.
	if err != nil || (u.Hostname() != "127.0.0.1" && u.Hostname() != "localhost") {
		return bad("bad webhook: the fake delivers to loopback only")
	}
	if p.has("secret_token") && !secretShape.MatchString(p.str("secret_token")) {
		return bad("secret token contains unallowed characters")
	}
	if err := p.object("allowed_updates", &s.queue.allowed); err != nil {
		return bad("can't parse allowed updates: %v", err)
	}
	if p.flag("drop_pending_updates") {
		s.queue.pending = nil
	}
	if s.queue.poller != nil {
		close(s.queue.poller)
		s.queue.poller = nil
	}
	s.queue.webhook = webhook{url: target, secret: p.str("secret_token")}
	return done(true)
}

func (s *Server) deleteWebhook(p params) answer {
	if p.flag("drop_pending_updates") {
		s.queue.pending = nil
	}
	s.queue.webhook = webhook{}
	return done(true)
}

func (s *Server) webhookInfo() answer {
	h := s.queue.webhook
	out := map[string]any{"url": h.url, "has_custom_certificate": false, "pending_update_count": len(s.queue.pending)}
	if h.lastError != "" {
		out["last_error_message"], out["last_error_date"] = h.lastError, h.lastAt.Unix()
	}
	return done(out)
}

// WebhookError is the last failure to deliver, as getWebhookInfo would tell.
func (s *Server) WebhookError() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.queue.webhook.lastError
}

// deliverWebhooks posts one update at a time and repeats it until it is taken, waiting longer after each refusal.
func (s *Server) deliverWebhooks() {
	pause := 10 * time.Millisecond
	for {
		hook, batch, changed := s.nextDelivery()
		if len(batch) == 0 {
			select {
			case <-changed:
				continue
			case <-s.ctx.Done():
				return
			}
		}
		failed := ""
		for _, body := range batch {
			if failed = s.post(hook, body); failed != "" {
				break
			}
		}
		s.delivered(hook, batch, failed)
		if failed == "" {
			pause = 10 * time.Millisecond
			continue
		}
		select {
		case <-time.After(pause):
			pause = min(2*pause, time.Second)
		case <-s.ctx.Done():
			return
		}
	}
}

// nextDelivery is the oldest pending update, with the duplicates that were asked for.
func (s *Server) nextDelivery() (webhook, []map[string]any, chan struct{}) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.queue.webhook.url == "" || len(s.queue.pending) == 0 {
		return webhook{}, nil, s.changed
	}
	return s.queue.webhook, s.queue.batch(1 + s.queue.repeat), s.changed
}

func (s *Server) delivered(hook webhook, batch []map[string]any, failed string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if failed == "" {
		last, _ := batch[len(batch)-1]["update_id"].(int64)
		s.queue.confirm(last + 1)
	} else if s.queue.webhook.url == hook.url {
		s.queue.webhook.lastError, s.queue.webhook.lastAt = failed, s.opt.Now()
	}
	s.wake()
}

func (s *Server) post(hook webhook, body map[string]any) (failed string) {
	data, err := json.Marshal(body)
	if err != nil {
		return err.Error()
	}
	ctx, cancel := context.WithTimeout(s.ctx, 30*time.Second)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, hook.url, bytes.NewReader(data))
	if err != nil {
		return err.Error()
	}
	req.Header.Set("Content-Type", "application/json")
	if hook.secret != "" {
		req.Header.Set("X-Telegram-Bot-Api-Secret-Token", hook.secret)
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return err.Error()
	}
	_ = resp.Body.Close()
	if resp.StatusCode < 200 || resp.StatusCode > 299 {
		return "Wrong response from the webhook: " + resp.Status
	}
	return ""
}
