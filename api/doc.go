// Package api is the HTTP surface: REST under /api, the WebSocket at /ws,
// health, metrics, the OpenAPI document and a small page.
//
// It owns who may call what over HTTP, the strict reading of requests, and
// the fan-out of events to sockets. It decides nothing about sessions (that
// is loop's), stores nothing, and starts no agent. A Server is safe for use
// by many goroutines; Serve and Run own every goroutine they start.
package api
