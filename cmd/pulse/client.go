package main

import (
	"errors"
	"io/fs"

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
	c, err := client.New(client.Config{BaseURL: baseURL(cfg), Token: token, Origin: pulse.OriginCLI})
	return c, cfg, err
}
