package main

import (
	"context"
	"crypto/sha512"
	"encoding/base64"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"sync"
	"time"
)

// downloader gets tarballs. The registry is looked up once, and only when something must be downloaded: asking npm
// takes longer than a run that finds everything in place.
type downloader struct {
	registry func() string
	client   *http.Client
	attempts int
	pause    func(ctx context.Context, attempt int) error
}

func newDownloader(registry func() string) *downloader {
	transport := http.DefaultTransport.(*http.Transport).Clone()
	transport.ResponseHeaderTimeout = 30 * time.Second
	return &downloader{registry: sync.OnceValue(registry), client: &http.Client{Transport: transport}, attempts: 5, pause: backoff}
}

// backoff waits 1, 2, 4, ... seconds.
func backoff(ctx context.Context, attempt int) error {
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-time.After(time.Second << attempt):
		return nil
	}
}

// errFinal marks what another attempt cannot mend.
type errFinal struct{ error }

// download writes the tarball to file and returns nil only when its checksum is the pinned one.
func (d *downloader) download(ctx context.Context, p Package, file string) error {
	address := d.registry() + p.Tarball
	var err error
	for attempt := range d.attempts {
		if attempt > 0 {
			if waitErr := d.pause(ctx, attempt-1); waitErr != nil {
				return waitErr
			}
		}
		if err = d.once(ctx, address, p.Integrity, file); err == nil {
			return nil
		}
		if final := (errFinal{}); errors.As(err, &final) || ctx.Err() != nil {
			return err
		}
	}
	return fmt.Errorf("%w (%d attempts; NPM_CONFIG_REGISTRY names another registry)", err, d.attempts)
}

func (d *downloader) once(ctx context.Context, address, integrity, file string) error {
	// A stalled transfer must end: the largest tarball needs 200 kB/s to fit.
	ctx, cancel := context.WithTimeout(ctx, 15*time.Minute)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, address, nil)
	if err != nil {
		return errFinal{fmt.Errorf("build request: %w", err)}
	}
	res, err := d.client.Do(req)
	if err != nil {
		return fmt.Errorf("download tarball: %w", err)
	}
	defer res.Body.Close()
	if res.StatusCode != http.StatusOK {
		err := fmt.Errorf("download %s: %s", address, res.Status)
		if res.StatusCode >= 500 || res.StatusCode == http.StatusTooManyRequests {
			return err
		}
		return errFinal{err}
	}
	return save(res.Body, integrity, file)
}

func save(body io.Reader, integrity, file string) error {
	f, err := os.Create(file)
	if err != nil {
		return errFinal{fmt.Errorf("create tarball: %w", err)}
	}
	defer f.Close()
	sum := sha512.New()
	if _, err := io.Copy(io.MultiWriter(f, sum), body); err != nil {
		return fmt.Errorf("download tarball: %w", err)
	}
	got := "sha512-" + base64.StdEncoding.EncodeToString(sum.Sum(nil))
	if got != integrity {
		return fmt.Errorf("check tarball: checksum is %s, the manifest says %s", got, integrity)
	}
	if err := f.Close(); err != nil {
		return errFinal{fmt.Errorf("write tarball: %w", err)}
	}
	return nil
}
