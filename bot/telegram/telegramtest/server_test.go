package telegramtest_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"strings"
	"testing"
	"time"

	tg "github.com/go-telegram/bot"
	"github.com/go-telegram/bot/models"

	"pulseloop/bot/telegram/telegramtest"
)

func start(t *testing.T, opt telegramtest.Options) (*telegramtest.Server, *tg.Bot, context.Context) {
	t.Helper()
	s := telegramtest.Start(t, opt)
	b, err := tg.New(s.Token(), tg.WithServerURL(s.URL()))
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
	t.Cleanup(cancel)
	return s, b, ctx
}

// loose is a server whose violations the test looks at by itself.
func loose(t *testing.T, opt telegramtest.Options) (*telegramtest.Server, *tg.Bot, context.Context) {
	t.Helper()
	s, err := telegramtest.New(opt)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(s.Close)
	b, err := tg.New(s.Token(), tg.WithServerURL(s.URL()))
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
	t.Cleanup(cancel)
	return s, b, ctx
}

type reply struct {
	OK          bool            `json:"ok"`
	Code        int             `json:"error_code"`
	Description string          `json:"description"`
	Result      json.RawMessage `json:"result"`
	Parameters  struct {
		RetryAfter int   `json:"retry_after"`
		MigrateTo  int64 `json:"migrate_to_chat_id"`
	} `json:"parameters"`
}

// call speaks JSON, as other clients do.
func call(t *testing.T, ctx context.Context, s *telegramtest.Server, method string, body any) (reply, error) {
	t.Helper()
	data, err := json.Marshal(body)
	if err != nil {
		t.Fatal(err)
	}
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, s.URL()+"/bot"+s.Token()+"/"+method, bytes.NewReader(data))
	if err != nil {
		t.Fatal(err)
	}
	req.Header.Set("Content-Type", "application/json")
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return reply{}, err
	}
	defer resp.Body.Close()
	var r reply
	if err := json.NewDecoder(resp.Body).Decode(&r); err != nil {
		return reply{}, err
	}
	return r, nil
}

type upd struct {
	ID      int64 `json:"update_id"`
	Message struct {
		Text string `json:"text"`
	} `json:"message"`
}

func fetch(t *testing.T, ctx context.Context, s *telegramtest.Server, offset int64, timeout int) []upd {
	t.Helper()
	r, err := call(t, ctx, s, "getUpdates", map[string]any{"offset": offset, "timeout": timeout})
	if err != nil || !r.OK {
		t.Fatalf("getUpdates: %v %+v", err, r)
	}
	var list []upd
	if err := json.Unmarshal(r.Result, &list); err != nil {
		t.Fatal(err)
	}
	return list
}

func TestSendEditAndPress(t *testing.T) {
	s, b, ctx := start(t, telegramtest.Options{})
	ann := s.User("Ann")
	chat := ann.Private()
	m, err := b.SendMessage(ctx, &tg.SendMessageParams{ChatID: chat.ID, Text: "déjà 👍 bold",
		Entities:    []models.MessageEntity{{Type: models.MessageEntityTypeBold, Offset: 8, Length: 4}},
		ReplyMarkup: &models.InlineKeyboardMarkup{InlineKeyboard: [][]models.InlineKeyboardButton{{{Text: "Yes", CallbackData: "g:1"}}}}})
	if err != nil {
		t.Fatal(err)
	}
	seen := chat.Messages()
	if len(seen) != 1 || seen[0].Entity(seen[0].Entities[0]) != "bold" {
		t.Fatalf("seen %+v", seen)
	}
	if _, err := b.EditMessageText(ctx, &tg.EditMessageTextParams{ChatID: chat.ID, MessageID: m.ID, Text: "after",
		ReplyMarkup: m.ReplyMarkup}); err != nil {
		t.Fatal(err)
	}
	if _, err := b.EditMessageText(ctx, &tg.EditMessageTextParams{ChatID: chat.ID, MessageID: m.ID, Text: "after",
		ReplyMarkup: m.ReplyMarkup}); err == nil || !strings.Contains(err.Error(), "message is not modified") {
		t.Fatalf("same edit twice: %v", err)
	}
	got, _ := chat.Message(m.ID)
	if got.Text != "after" || len(got.Edits) != 1 {
		t.Fatalf("after the edit %+v", got)
	}
	if _, err := chat.Press(ann, m.ID, "No"); err == nil {
		t.Fatal("pressed a button that is not there")
	}
	cb, err := chat.Press(ann, m.ID, "Yes")
	if err != nil {
		t.Fatal(err)
	}
	if _, err := b.AnswerCallbackQuery(ctx, &tg.AnswerCallbackQueryParams{CallbackQueryID: cb.ID, Text: "ok"}); err != nil {
		t.Fatal(err)
	}
	if text, err := cb.Await(ctx); err != nil || text != "ok" {
		t.Fatalf("answer %q %v", text, err)
	}
	if _, err := b.AnswerCallbackQuery(ctx, &tg.AnswerCallbackQueryParams{CallbackQueryID: cb.ID}); err == nil {
		t.Fatal("a press was answered twice")
	}
	if _, err := b.EditMessageText(ctx, &tg.EditMessageTextParams{ChatID: chat.ID, MessageID: 99, Text: "x"}); err == nil ||
		!strings.Contains(err.Error(), "message to edit not found") {
		t.Fatalf("edit of nothing: %v", err)
	}
}

func TestOffsetConfirmsAndOnlyOnePolls(t *testing.T) {
	s, _, ctx := start(t, telegramtest.Options{})
	ann := s.User("Ann")
	chat := ann.Private()
	chat.Say(ann, "one")
	chat.Say(ann, "two")
	first := fetch(t, ctx, s, 0, 0)
	again := fetch(t, ctx, s, 0, 0)
	if len(first) != 2 || len(again) != 2 || first[0].ID+1 != first[1].ID {
		t.Fatalf("first %v, again %v", first, again)
	}
	rest := fetch(t, ctx, s, first[0].ID+1, 0)
	if len(rest) != 1 || rest[0].Message.Text != "two" {
		t.Fatalf("after confirming one: %v", rest)
	}
	older := make(chan reply, 1)
	go func() {
		r, _ := call(t, ctx, s, "getUpdates", map[string]any{"offset": first[1].ID + 1, "timeout": 30})
		older <- r
	}()
	if err := s.Await(ctx, s.Polling); err != nil {
		t.Fatal(err)
	}
	newer := make(chan []upd, 1)
	go func() { newer <- fetch(t, ctx, s, first[1].ID+1, 30) }()
	if r := <-older; r.Code != http.StatusConflict {
		t.Fatalf("the older poll got %+v", r)
	}
	chat.Say(ann, "three")
	if got := <-newer; len(got) != 1 || got[0].Message.Text != "three" {
		t.Fatalf("the newer poll got %v", got)
	}
	s.RepeatUpdates(2)
	s.ReverseUpdates()
	if got := fetch(t, ctx, s, first[1].ID+1, 0); len(got) != 3 || got[0].Message.Text != "three" {
		t.Fatalf("repeated and reversed: %v", got)
	}
}

func TestRefusals(t *testing.T) {
	s, b, ctx := loose(t, telegramtest.Options{})
	ann, bob := s.User("Ann"), s.User("Bob")
	chat := ann.Private()
	forum := s.Group("forum", true)
	topic := forum.Topic(ann, "work")
	forum.CloseTopic(ann, topic.Thread())
	gone := forum.Topic(ann, "gone")
	forum.DeleteTopic(gone.Thread())
	ann2 := s.User("Ann2")
	blocked := ann2.Private()
	ann2.Block(true)
	left := s.Group("left", false)
	left.Kick()
	for name, c := range map[string]struct {
		p    tg.SendMessageParams
		want string
	}{
		"unknown chat":  {tg.SendMessageParams{ChatID: 5, Text: "x"}, "chat not found"},
		"not started":   {tg.SendMessageParams{ChatID: bob.ID, Text: "x"}, "can't initiate conversation"},
		"blocked":       {tg.SendMessageParams{ChatID: blocked.ID, Text: "x"}, "blocked by the user"},
		"kicked":        {tg.SendMessageParams{ChatID: left.ID, Text: "x"}, "kicked"},
		"too long":      {tg.SendMessageParams{ChatID: chat.ID, Text: strings.Repeat("👍", 2049)}, "too long"},
		"empty":         {tg.SendMessageParams{ChatID: chat.ID, Text: " \n"}, "text is empty"},
		"no reply":      {tg.SendMessageParams{ChatID: chat.ID, Text: "x", ReplyParameters: &models.ReplyParameters{MessageID: 9}}, "message to be replied not found"},
		"closed topic":  {tg.SendMessageParams{ChatID: forum.ID, MessageThreadID: topic.Thread(), Text: "x"}, "TOPIC_CLOSED"},
		"deleted topic": {tg.SendMessageParams{ChatID: forum.ID, MessageThreadID: gone.Thread(), Text: "x"}, "message thread not found"},
		"entity out of range": {tg.SendMessageParams{ChatID: chat.ID, Text: "abc",
			Entities: []models.MessageEntity{{Type: "bold", Offset: 1, Length: 3}}}, "ends after the end"},
		"entity splits a pair": {tg.SendMessageParams{ChatID: chat.ID, Text: "👍x",
			Entities: []models.MessageEntity{{Type: "bold", Offset: 1, Length: 2}}}, "middle of a UTF-16 symbol"},
		"long data": {tg.SendMessageParams{ChatID: chat.ID, Text: "x", ReplyMarkup: &models.InlineKeyboardMarkup{
			InlineKeyboard: [][]models.InlineKeyboardButton{{{Text: "b", CallbackData: strings.Repeat("x", 65)}}}}}, "BUTTON_DATA_INVALID"},
	} {
		if _, err := b.SendMessage(ctx, &c.p); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: got %v, want %q", name, err, c.want)
		}
	}
	if len(s.Violations()) != 5 {
		t.Errorf("violations: %q", s.Violations())
	}
	old := s.Group("small", false)
	moved := old.Migrate(ann)
	r, err := call(t, ctx, s, "sendMessage", map[string]any{"chat_id": old.ID, "text": "x"})
	if err != nil || r.Parameters.MigrateTo != moved.ID {
		t.Errorf("migrated: %v %+v", err, r)
	}
}

func TestLimits(t *testing.T) {
	now := time.Unix(1_800_000_000, 0)
	s, b, ctx := start(t, telegramtest.Options{Limits: telegramtest.RealLimits, Now: func() time.Time { return now }})
	chat := s.User("Ann").Private()
	send := func(text string) error {
		_, err := b.SendMessage(ctx, &tg.SendMessageParams{ChatID: chat.ID, Text: text})
		return err
	}
	if err := send("a"); err != nil {
		t.Fatal(err)
	}
	var many *tg.TooManyRequestsError
	if err := send("b"); !errors.As(err, &many) || many.RetryAfter != 1 {
		t.Fatalf("second in the same second: %v", err)
	}
	now = now.Add(time.Second)
	if err := send("c"); err != nil {
		t.Fatal(err)
	}
	group := s.Supergroup("g")
	for i := range 21 {
		now = now.Add(time.Second)
		_, err := b.SendMessage(ctx, &tg.SendMessageParams{ChatID: group.ID, Text: "x"})
		if (err != nil) != (i == 20) {
			t.Fatalf("message %d to a group: %v", i, err)
		}
	}
}

func TestFaults(t *testing.T) {
	s, b, ctx := start(t, telegramtest.Options{})
	chat := s.User("Ann").Private()
	send := func(ctx context.Context, text string) error {
		_, err := b.SendMessage(ctx, &tg.SendMessageParams{ChatID: chat.ID, Text: text})
		return err
	}
	s.Inject(telegramtest.Fault{Method: "sendMessage", Skip: 1, RetryAfter: 30})
	if err := send(ctx, "passes"); err != nil {
		t.Fatal(err)
	}
	var many *tg.TooManyRequestsError
	if err := send(ctx, "x"); !errors.As(err, &many) || many.RetryAfter != 30 {
		t.Fatal(err)
	}
	s.Inject(telegramtest.Fault{Method: "sendMessage", Cut: true, Applied: true})
	if err := send(ctx, "ambiguous"); err == nil {
		t.Fatal("a cut connection gave no error")
	}
	s.Inject(telegramtest.Fault{Method: "sendMessage", Status: 500})
	if err := send(ctx, "lost"); err == nil {
		t.Fatal("a 500 gave no error")
	}
	s.Inject(telegramtest.Fault{Method: "sendMessage", HTML: true})
	if err := send(ctx, "lost"); err == nil {
		t.Fatal("a page gave no error")
	}
	hang := s.Inject(telegramtest.Fault{Method: "sendMessage", Hang: true, Times: -1})
	short, cancel := context.WithCancel(ctx)
	go func() {
		_ = s.Await(ctx, func() bool { return hang.Hits() == 1 })
		cancel()
	}()
	if err := send(short, "lost"); !errors.Is(err, context.Canceled) {
		t.Fatal(err)
	}
	hang.Remove()
	var texts []string
	for _, m := range chat.FromBot() {
		texts = append(texts, m.Text)
	}
	if got := strings.Join(texts, " "); got != "passes ambiguous" {
		t.Fatalf("visible: %s", got)
	}
}

func TestWebhook(t *testing.T) {
	s, b, ctx := start(t, telegramtest.Options{})
	type hit struct{ secret, body string }
	hits := make(chan hit, 10)
	status := make(chan int, 10)
	mux := http.NewServeMux()
	mux.HandleFunc("/hook", func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		hits <- hit{r.Header.Get("X-Telegram-Bot-Api-Secret-Token"), string(body)}
		w.WriteHeader(<-status)
	})
	srv := newLoopback(t, mux)
	if _, err := b.SetWebhook(ctx, &tg.SetWebhookParams{URL: srv + "/hook", SecretToken: "s3cret"}); err != nil {
		t.Fatal(err)
	}
	r, err := call(t, ctx, s, "getUpdates", map[string]any{})
	if err != nil || r.Code != http.StatusConflict {
		t.Fatalf("getUpdates beside a webhook: %v %+v", err, r)
	}
	ann := s.User("Ann")
	status <- 503
	status <- 200
	ann.Private().Say(ann, "hello")
	first, second := <-hits, <-hits
	if first.secret != "s3cret" || first != second || !strings.Contains(first.body, "hello") {
		t.Fatalf("deliveries %+v, %+v", first, second)
	}
	if err := s.Await(ctx, func() bool { return len(s.Pending()) == 0 }); err != nil {
		t.Fatal(err)
	}
	if s.WebhookError() == "" {
		t.Error("the refused delivery left no trace")
	}
	if _, err := b.DeleteWebhook(ctx, &tg.DeleteWebhookParams{}); err != nil {
		t.Fatal(err)
	}
	ann.Private().Say(ann, "later")
	if got := fetch(t, ctx, s, 0, 0); len(got) != 1 {
		t.Fatalf("after deleteWebhook: %v", got)
	}
}

func TestDocumentsTopicsAndTheRest(t *testing.T) {
	s, b, ctx := start(t, telegramtest.Options{})
	ann := s.User("Ann")
	chat := ann.Private()
	if _, err := b.SendDocument(ctx, &tg.SendDocumentParams{ChatID: chat.ID, Caption: "the log",
		Document: &models.InputFileUpload{Filename: "log.txt", Data: strings.NewReader("line")}}); err != nil {
		t.Fatal(err)
	}
	doc := chat.FromBot()[0]
	f, err := b.GetFile(ctx, &tg.GetFileParams{FileID: doc.FileID})
	if err != nil {
		t.Fatal(err)
	}
	resp, err := http.Get(b.FileDownloadLink(f))
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	if data, _ := io.ReadAll(resp.Body); string(data) != "line" {
		t.Fatalf("downloaded %q", data)
	}
	forum := s.Group("forum", true)
	made, err := b.CreateForumTopic(ctx, &tg.CreateForumTopicParams{ChatID: forum.ID, Name: "add health"})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := b.SendMessage(ctx, &tg.SendMessageParams{ChatID: forum.ID, MessageThreadID: made.MessageThreadID, Text: "in it"}); err != nil {
		t.Fatal(err)
	}
	if got := forum.In(made.MessageThreadID).FromBot(); len(got) != 1 || got[0].Text != "in it" {
		t.Fatalf("in the topic: %+v", got)
	}
	if _, err := b.EditForumTopic(ctx, &tg.EditForumTopicParams{ChatID: forum.ID, MessageThreadID: made.MessageThreadID, Name: "done"}); err != nil {
		t.Fatal(err)
	}
	if _, err := b.CloseForumTopic(ctx, &tg.CloseForumTopicParams{ChatID: forum.ID, MessageThreadID: made.MessageThreadID}); err != nil {
		t.Fatal(err)
	}
	if name, open := forum.TopicName(made.MessageThreadID); name != "done" || open {
		t.Fatalf("topic %q open=%v", name, open)
	}
	if _, err := b.SetMyCommands(ctx, &tg.SetMyCommandsParams{Commands: []models.BotCommand{{Command: "status", Description: "What runs"}}}); err != nil {
		t.Fatal(err)
	}
	if _, err := b.SetMessageReaction(ctx, &tg.SetMessageReactionParams{ChatID: chat.ID, MessageID: doc.ID,
		Reaction: []models.ReactionType{{Type: models.ReactionTypeTypeEmoji, ReactionTypeEmoji: &models.ReactionTypeEmoji{Emoji: "👀"}}}}); err != nil {
		t.Fatal(err)
	}
	if _, err := b.PinChatMessage(ctx, &tg.PinChatMessageParams{ChatID: chat.ID, MessageID: doc.ID}); err != nil {
		t.Fatal(err)
	}
	if _, err := b.SendChatAction(ctx, &tg.SendChatActionParams{ChatID: chat.ID, Action: models.ChatActionTyping}); err != nil {
		t.Fatal(err)
	}
	if r, err := call(t, ctx, s, "sendMessageDraft", map[string]any{"chat_id": chat.ID, "draft_id": 3, "text": "thinking"}); err != nil || !r.OK {
		t.Fatalf("draft: %v %+v", err, r)
	}
	if got, _ := chat.Message(doc.ID); !got.Pinned || len(got.Reactions) != 1 || len(chat.Drafts()) != 1 || len(chat.Actions()) != 1 {
		t.Fatalf("state %+v %v %v", got, chat.Drafts(), chat.Actions())
	}
	if _, err := b.DeleteMessage(ctx, &tg.DeleteMessageParams{ChatID: chat.ID, MessageID: doc.ID}); err != nil {
		t.Fatal(err)
	}
	if len(chat.Messages()) != 0 {
		t.Fatal("deleted and visible")
	}
	if len(s.Commands()) != 1 || len(s.CallsOf("sendDocument")) != 1 {
		t.Fatal("commands or calls were not recorded")
	}
}

func TestSpecIsEnforced(t *testing.T) {
	s, _, ctx := loose(t, telegramtest.Options{})
	if !s.SpecChecked() {
		t.Skip("no API description: set PULSE_SPECS_DIR")
	}
	chat := s.User("Ann").Private()
	for name, c := range map[string]struct {
		method string
		body   map[string]any
		want   string
	}{
		"unknown parameter": {"sendMessage", map[string]any{"chat_id": chat.ID, "text": "x", "colour": 1}, "unknown parameter colour"},
		"missing":           {"sendMessage", map[string]any{"chat_id": chat.ID}, "required parameter text is missing"},
		"wrong type":        {"sendMessage", map[string]any{"chat_id": chat.ID, "text": "x", "message_thread_id": "abc"}, "message_thread_id is not Integer"},
		"nested":            {"sendMessage", map[string]any{"chat_id": chat.ID, "text": "x", "reply_markup": map[string]any{"inline_keyboard": [][]any{{map[string]any{"label": "x"}}}}}, "reply_markup"},
		"entity field":      {"sendMessage", map[string]any{"chat_id": chat.ID, "text": "x", "entities": []any{map[string]any{"type": "bold", "start": 0}}}, "has no field start"},
		"no such method":    {"sendMesage", map[string]any{"chat_id": chat.ID, "text": "x"}, "no such method"},
	} {
		before := len(s.Violations())
		if _, err := call(t, ctx, s, c.method, c.body); err != nil {
			t.Fatal(err)
		}
		if got := strings.Join(s.Violations()[before:], "; "); !strings.Contains(got, c.want) {
			t.Errorf("%s: violations %q, want %q", name, got, c.want)
		}
	}
}

func TestWrongToken(t *testing.T) {
	s, _, ctx := start(t, telegramtest.Options{})
	if _, err := tg.New("4000000001:wrong", tg.WithServerURL(s.URL())); !errors.Is(err, tg.ErrorUnauthorized) {
		t.Fatal(err)
	}
	if err := s.Await(canceled(ctx), func() bool { return false }); !errors.Is(err, context.Canceled) {
		t.Fatalf("await: %v", err)
	}
}
