package telegram

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strconv"
	"time"

	"pulseloop/pulse"
)

// allowedUpdates are asked for by name: the platform otherwise keeps whatever an earlier program with this token asked for.
var allowedUpdates = []string{"message", "edited_message", "channel_post", "edited_channel_post", "callback_query", "my_chat_member"}

// apiError is a refusal of a call that go-telegram/bot does not offer.
type apiError struct {
	Code        int
	Description string
	RetryAfter  time.Duration
}

func (e *apiError) Error() string { return fmt.Sprintf("%d %s", e.Code, e.Description) }

// errBadAnswer is an answer that is not the Bot API's: a proxy's page, or half a body.
var errBadAnswer = errors.New("the answer is not the Bot API's")

// getUpdates fetches raw updates from offset on (0: from the oldest unconfirmed), waiting up to wait for the first.
func (c *Client) getUpdates(ctx context.Context, offset int64, wait time.Duration) ([]json.RawMessage, error) {
	ask := map[string]any{"timeout": int(wait / time.Second), "limit": 100, "allowed_updates": allowedUpdates}
	if offset > 0 {
		ask["offset"] = offset
	}
	body, err := json.Marshal(ask)
	if err != nil {
		return nil, fmt.Errorf("write getUpdates: %w", err)
	}
	ctx, cancel := context.WithTimeout(ctx, wait+c.timeout)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, c.base+"/bot"+c.token+"/getUpdates", bytes.NewReader(body))
	if err != nil {
		return nil, c.clean(err)
	}
	req.Header.Set("Content-Type", "application/json")
	resp, err := c.http.Do(req)
	if err != nil {
		return nil, c.clean(err)
	}
	defer func() { _ = resp.Body.Close() }()
	data, err := io.ReadAll(resp.Body)
	if err != nil {
		return nil, c.clean(fmt.Errorf("read updates: %w", err))
	}
	var answer struct {
		OK          bool              `json:"ok"`
		Result      []json.RawMessage `json:"result"`
		ErrorCode   int               `json:"error_code"`
		Description string            `json:"description"`
		Parameters  struct {
			RetryAfter int `json:"retry_after"`
		} `json:"parameters"`
	}
	if err := json.Unmarshal(data, &answer); err != nil {
		return nil, fmt.Errorf("%w: status %d", errBadAnswer, resp.StatusCode)
	}
	if !answer.OK {
		return nil, &apiError{Code: answer.ErrorCode, Description: clip(c.strip(answer.Description), 300),
			RetryAfter: time.Duration(answer.Parameters.RetryAfter) * time.Second}
	}
	return answer.Result, nil
}

// maxUpdateID is far beyond what the platform counts to, and leaves room for +1.
const maxUpdateID = 1<<53 - 1

// inbound wraps a raw update for the store. Only its id is looked at here: whatever else is odd about it is the decoder's to note,
// after it is safe.
func (c *Client) inbound(raw []byte, now time.Time) (pulse.Inbound, int64, error) {
	var head struct {
		ID *int64 `json:"update_id"`
	}
	if err := json.Unmarshal(raw, &head); err != nil {
		return pulse.Inbound{}, 0, fmt.Errorf("read update id: %w", err)
	}
	if head.ID == nil || *head.ID < 0 || *head.ID > maxUpdateID {
		return pulse.Inbound{}, 0, errors.New("read update id: missing or out of range")
	}
	return pulse.Inbound{ID: pulse.InboundID(pulse.NewUUID(now)), Platform: pulse.PlatformTelegram, Source: c.Source(),
		UpdateID: strconv.FormatInt(*head.ID, 10), Order: *head.ID, Payload: bytes.Clone(raw), ReceivedAt: now}, *head.ID, nil
}
