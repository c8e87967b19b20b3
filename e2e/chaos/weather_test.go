package chaos

import (
	"context"
	"math/rand/v2"
	"time"

	"pulseloop/bot/telegram/telegramtest"
)

// weather makes the fake platform misbehave at random until ctx ends, then removes every fault. victim is a chat that
// refuses for good. It answers how many calls met a fault.
func weather(ctx context.Context, tg *telegramtest.Server, r *rand.Rand, victim int64) (hits int) {
	var all []*telegramtest.Injected
	for ctx.Err() == nil {
		all = append(all, gust(tg, r)...)
		if r.IntN(6) == 0 {
			all = append(all, tg.Inject(telegramtest.Fault{ChatID: victim, Status: 403, Description: "Forbidden: bot was blocked by the user"}))
		}
		pause, cancel := context.WithTimeout(ctx, between(r, 100*time.Millisecond, 500*time.Millisecond))
		<-pause.Done()
		cancel()
		for _, in := range all {
			if in.Hang && r.IntN(2) == 0 {
				in.Remove()
			}
		}
	}
	for _, in := range all {
		in.Remove()
		hits += in.Hits()
	}
	return hits
}

// gust is one fault, or a few.
func gust(tg *telegramtest.Server, r *rand.Rand) []*telegramtest.Injected {
	method := []string{"sendMessage", "sendMessage", "sendMessage", "editMessageText", "getUpdates", "answerCallbackQuery"}[r.IntN(6)]
	f := telegramtest.Fault{Method: method, Times: 1 + r.IntN(2)}
	switch r.IntN(10) {
	case 0:
		tg.RepeatUpdates(1 + r.IntN(8))
		return nil
	case 1:
		tg.ReverseUpdates()
		return nil
	case 2:
		f.RetryAfter = 1
	case 3:
		f.HTML = true
	case 4:
		f.Status = 500
	case 5:
		f.Cut = true
	case 6:
		f.Cut, f.Applied = true, true
	case 7:
		f.Status, f.Applied = 500, true
	case 8:
		f.Hang = true
	case 9:
		if method != "editMessageText" {
			return nil
		}
		f.Status, f.Description = 400, "Bad Request: message is not modified: specified new message content and reply markup are exactly the same as a current content and reply markup of the message"
	}
	return []*telegramtest.Injected{tg.Inject(f)}
}
