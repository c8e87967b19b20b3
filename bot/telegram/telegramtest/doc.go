// Package telegramtest is a Telegram Bot API server for tests: it listens on loopback, keeps the state a real one keeps
// (users, chats, topics, messages, edits, buttons, updates not yet confirmed, a webhook) and answers as the real one answers,
// errors included. It can be told to misbehave (Inject), enforces the platform's rate limits when asked to, and compares
// every call with the published description of the API when it is given one.
//
// It never talks to Telegram and knows nothing of this program: a real binary pointed at URL cannot tell the difference.
// What it does not model (parse modes, media beyond documents, payments, inline mode) it reports as a violation rather than
// pretending.
//
// All methods may be called from any goroutine. Nothing sleeps: who waits is woken by the next change (Await).
package telegramtest
