// Package chaos ends the program in every way a machine can, at random points of conversations, and counts what was lost,
// doubled or left behind.
//
// The program runs as processes, on SQLite and on PostgreSQL, alone and as server and daemons; Telegram is a fake in the
// test's own process, so it survives. People talk in several chats at once while the program is killed, stopped and
// continued, while Telegram refuses, hangs, cuts connections and delivers twice. An oracle beside the product writes down
// what was said and what was delivered, each line synced to disk. When the faults have ended, every session must come to
// its end in time, and the database, the branches, the chats and the oracle must tell the same story.
//
// A run prints its seed, and -chaos.seed repeats its decisions (not the machine's timing). It owns nothing of the product;
// what the product promises is in docs/reliability.md.
package chaos
