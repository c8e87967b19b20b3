// Package modeltest owns model servers for tests: loopback HTTP servers that speak the provider protocols of the agent CLIs
// (Anthropic Messages, OpenAI Responses) and answer from scripts, so that the real CLIs run offline and do what the test says.
//
// A script is addressed by conversation, not by the order in which requests arrive: a request is answered from the state it
// carries (who asked what, how many tool rounds have passed since), so background requests, retries, and any number of
// sessions at once never eat each other's steps. A request no script expects, or one that breaks the protocol, is answered
// 500 and kept in Server.Violations.
//
// The package never decides what an agent should do, never starts a process, and never leaves loopback. A Server may be used
// from any number of goroutines; a Script must not be changed after it was handed over.
package modeltest
