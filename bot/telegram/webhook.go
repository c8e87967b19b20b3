package telegram

import (
	"bytes"
	"context"
	"crypto/rand"
	"crypto/sha256"
	"crypto/subtle"
	"encoding/hex"
	"encoding/json"
	"errors"
	"io"
	"log/slog"
	"mime"
	"net/http"
	"net/url"
	"regexp"
	"strings"
	"time"

	tg "github.com/go-telegram/bot"

	"pulseloop/bot"
	"pulseloop/pulse"
)

// SecretHeader is where Telegram puts the secret that setWebhook was given.
const SecretHeader = "X-Telegram-Bot-Api-Secret-Token"

const (
	maxUpdate   = 1 << 20
	commitLimit = 10 * time.Second
)

// WebhookConfig of a Webhook.
type WebhookConfig struct {
	// URL under which Telegram reaches the handler; public and https.
	URL string
	// Secret that every delivery must carry; default a new random one, told to Telegram by Register at each start. Give one
	// when several processes receive for the same bot.
	Secret string
	// BodyTimeout bounds how long a delivery may take to arrive; default 10 s.
	BodyTimeout time.Duration
	Now         func() time.Time
	Log         *slog.Logger
}

// Webhook receives updates by HTTP. It answers 200 only for what is committed; everything else Telegram sends again.
type Webhook struct {
	c      *Client
	intake bot.Intake
	cfg    WebhookConfig
	secret [sha256.Size]byte
}

var secretShape = regexp.MustCompile(`^[A-Za-z0-9_-]{16,256}$`)

// NewWebhook checks the configuration; Register tells Telegram.
func NewWebhook(c *Client, intake bot.Intake, cfg WebhookConfig) (*Webhook, error) {
	u, err := url.Parse(cfg.URL)
	if err != nil || u.Host == "" || (u.Scheme != "https" && !(u.Scheme == "http" && loopback(u.Hostname()))) {
		return nil, pulse.Invalid("the Telegram webhook URL is not one", "it is the public https address of this server, with a path")
	}
	if cfg.Secret == "" {
		var b [32]byte
		if _, err := rand.Read(b[:]); err != nil {
			return nil, &pulse.Error{Code: pulse.CodeInternal, Message: "cannot make a webhook secret", Err: err}
		}
		cfg.Secret = hex.EncodeToString(b[:])
	}
	if !secretShape.MatchString(cfg.Secret) {
		return nil, pulse.Invalid("the Telegram webhook secret is not usable", "16 to 256 of A-Z, a-z, 0-9, _ and -; or leave it empty")
	}
	if cfg.BodyTimeout <= 0 {
		cfg.BodyTimeout = 10 * time.Second
	}
	if cfg.Now == nil {
		cfg.Now = time.Now
	}
	if cfg.Log == nil {
		cfg.Log = c.log
	}
	return &Webhook{c: c, intake: intake, cfg: cfg, secret: sha256.Sum256([]byte(cfg.Secret))}, nil
}

// Register learns who the bot is and sets the webhook. One connection only: with more, updates overtake each other.
func (h *Webhook) Register(ctx context.Context) error {
	if _, err := h.c.Check(ctx); err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, h.c.timeout)
	defer cancel()
	ctx, at := withAttempt(ctx)
	_, err := h.c.api.SetWebhook(ctx, &tg.SetWebhookParams{URL: h.cfg.URL, SecretToken: h.cfg.Secret, MaxConnections: 1,
		AllowedUpdates: allowedUpdates})
	if err != nil {
		return h.c.explain("set the bot's webhook", err, at)
	}
	return nil
}

// ServeHTTP takes one update. Who does not know the secret learns nothing and costs nothing: the body is not read.
func (h *Webhook) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if !h.known(r.Header) {
		http.Error(w, "unauthorized", http.StatusUnauthorized)
		return
	}
	if r.Method != http.MethodPost {
		w.Header().Set("Allow", http.MethodPost)
		http.Error(w, "method not allowed", http.StatusMethodNotAllowed)
		return
	}
	kind, _, err := mime.ParseMediaType(r.Header.Get("Content-Type"))
	if err != nil || kind != "application/json" || !identity(r.Header) {
		http.Error(w, "application/json, not compressed, is expected", http.StatusUnsupportedMediaType)
		return
	}
	body, status := h.read(w, r)
	if status != 0 {
		http.Error(w, http.StatusText(status), status)
		return
	}
	h.receive(w, r, body)
}

func (h *Webhook) receive(w http.ResponseWriter, r *http.Request, body []byte) {
	in, _, err := h.c.inbound(body, h.cfg.Now())
	if err != nil || repeatsKeys(body) {
		http.Error(w, "not an update", http.StatusBadRequest)
		return
	}
	ctx, cancel := context.WithTimeout(r.Context(), commitLimit)
	defer cancel()
	if _, err := h.intake.Receive(ctx, h.c.Source(), []pulse.Inbound{in}, ""); err != nil {
		h.cfg.Log.Error("an update could not be stored; Telegram will send it again", "update", in.UpdateID, "error", err)
		w.Header().Set("Retry-After", "5")
		http.Error(w, "try again", http.StatusServiceUnavailable)
		return
	}
	w.WriteHeader(http.StatusOK)
}

// repeatsKeys says whether a JSON object names something twice at its top: the platform never does, and which of the two counts
// is a question that nobody should have to answer.
func repeatsKeys(object []byte) bool {
	d := json.NewDecoder(bytes.NewReader(object))
	if _, err := d.Token(); err != nil {
		return true
	}
	seen := map[string]bool{}
	for d.More() {
		key, err := d.Token()
		name, ok := key.(string)
		var value json.RawMessage
		if err != nil || !ok || seen[strings.ToLower(name)] || d.Decode(&value) != nil {
			return true
		}
		seen[strings.ToLower(name)] = true // encoding/json takes any case for the same name
	}
	return false
}

// known compares hashes, so that neither content nor length of the secret shows in the time it takes.
func (h *Webhook) known(head http.Header) bool {
	given := head.Values(SecretHeader)
	if len(given) != 1 {
		return false
	}
	sum := sha256.Sum256([]byte(given[0]))
	return subtle.ConstantTimeCompare(sum[:], h.secret[:]) == 1
}

func identity(head http.Header) bool {
	enc := strings.TrimSpace(head.Get("Content-Encoding"))
	return enc == "" || strings.EqualFold(enc, "identity")
}

func (h *Webhook) read(w http.ResponseWriter, r *http.Request) (body []byte, status int) {
	// A server whose connections cannot have deadlines (a test's recorder) still has the size limit.
	_ = http.NewResponseController(w).SetReadDeadline(time.Now().Add(h.cfg.BodyTimeout))
	body, err := io.ReadAll(http.MaxBytesReader(w, r.Body, maxUpdate))
	var tooLarge *http.MaxBytesError
	switch {
	case errors.As(err, &tooLarge):
		return nil, http.StatusRequestEntityTooLarge
	case err != nil:
		return nil, http.StatusBadRequest
	}
	return body, 0
}
