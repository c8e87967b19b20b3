// Package telegram is the adapter to the Telegram Bot API: a receiver (Poller or Webhook) that commits raw updates, a Decoder
// that turns them into neutral events, and a Sender that delivers notices within the platform's limits.
//
// It never decides who may do what (that is bot's), never chooses what is told (notify's), and never confirms to Telegram an
// update that is not committed. go-telegram/bot is used for its types and calls only: its poller confirms updates before they
// are handled and its webhook handler answers before processing, so both are written here.
//
// Formatting goes out as entities, never as MarkdownV2 or HTML: there is nothing to escape and so nothing to get wrong.
//
// Client, Sender, Decoder and Webhook may be used from any goroutine. A Poller is run by one.
package telegram
