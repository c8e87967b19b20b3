// Package bot owns the words that come in: what an update of any platform
// means, who may do what, and which use case it becomes.
//
// The Router reads committed updates, authorises the sender (never the chat),
// finds the session that is spoken to, and ends every update with one write:
// the outcome, the reply, and the mark that the update was handled, together.
// It never sends anything itself (replies are rows of the outbox), never
// decides about a session (that is loop), and knows no platform: an adapter
// decodes, and may acknowledge presses and open topics.
//
// Forwarded words are refused with a reply, whoever passes them on: they are
// another's, and decide, start and pair nothing.
//
// Updates of one chat are handled in order, those of different chats at
// once. A Router runs once a process; several processes do no harm, because
// the mark is part of the write.
package bot
