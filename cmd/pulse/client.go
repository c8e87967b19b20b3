package main

import (
	"errors"
	"io/fs"
	"net/http"
	"time"

	"pulseloop/api/client"
	"pulseloop/configs"
	"pulseloop/pulse"
)

// connect makes a client of the server that this configuration runs. The
// token is read from its file where there is one; without it the server
// itself says what it refuses.
func (o *options) connect() (*client.Client, configs.Config, error) {
	cfg, err := o.load()
	if err != nil {
		return nil, cfg, err
	}
	token := cfg.HTTP.Token.Reveal()
	if token == "" {
		token, err = readToken(cfg)
		if err != nil && !errors.Is(err, fs.ErrNotExist) && !errors.Is(err, fs.ErrPermission) {
			return nil, cfg, err
		}
	}
	c, err := client.New(client.Config{BaseURL: baseURL(cfg), Token: token, Origin: pulse.OriginCLI, HTTP: patient(30 * time.Second)})
	return c, cfg, err
}

// patient is an HTTP client that gives a server so long to begin its answer:
// another program may have the port, and listen without a word.
func patient(limit time.Duration) *http.Client {
	t := http.DefaultTransport.(*http.Transport).Clone()
	t.ResponseHeaderTimeout = limit
	// A redirect could carry the token elsewhere; the API has none.
	return &http.Client{Transport: t, CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }}
}
