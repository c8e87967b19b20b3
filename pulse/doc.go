// Package pulse holds the words of the product: identifiers, states with
// their transition tables, records, errors, and the change set by which a
// decision reaches the store.
//
// It imports the standard library only, performs no I/O, and carries no
// storage or wire tags: every other package translates these words into its
// own form. All types are plain values; nothing here starts a goroutine, and
// everything may be used from many goroutines at once as long as a value is
// not written concurrently.
package pulse
