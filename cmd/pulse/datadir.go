package main

import (
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"syscall"

	"pulseloop/configs"
	"pulseloop/pulse"
)

// tokenFile is where the token of the API stands, readable by its user alone.
func tokenFile(c configs.Config) string { return filepath.Join(c.DataDir, "token") }

// ensureDataDir makes the data directory and the token in it. What is no
// reason to stop is said to warn.
func ensureDataDir(c configs.Config, warn func(string)) (token string, err error) {
	if err := os.MkdirAll(c.DataDir, 0o700); err != nil {
		return "", &pulse.Error{Code: pulse.CodeInvalid, Message: "the data directory cannot be made: " + c.DataDir,
			Hint: "set data_dir (PULSE_DATA_DIR) to a directory you may write to", Err: err}
	}
	closeToOthers(c.DataDir, warn)
	if t := c.HTTP.Token.Reveal(); t != "" {
		return t, nil
	}
	token, err = readToken(c)
	if err == nil || !errors.Is(err, fs.ErrNotExist) {
		return token, err
	}
	raw := make([]byte, 32)
	if _, err := rand.Read(raw); err != nil {
		return "", fmt.Errorf("make the token: %w", err)
	}
	token = hex.EncodeToString(raw)
	f, err := os.OpenFile(tokenFile(c), os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if errors.Is(err, fs.ErrExist) {
		return readToken(c) // another start was quicker
	}
	if err != nil {
		return "", fmt.Errorf("make the token file: %w", err)
	}
	_, err = f.WriteString(token + "\n")
	return token, errors.Join(err, f.Close())
}

// closeToOthers takes a data directory that was made beforehand for its user
// alone: the database and what agents write lie there.
func closeToOthers(dir string, warn func(string)) {
	info, err := os.Stat(dir)
	if err != nil || info.Mode().Perm()&0o077 == 0 {
		return
	}
	home, _ := os.UserHomeDir()
	st, known := info.Sys().(*syscall.Stat_t)
	// A directory such as /tmp or the home is for more than this program.
	shared := info.Mode()&os.ModeSticky != 0 || filepath.Clean(dir) == filepath.Clean(home)
	if known && int(st.Uid) == os.Geteuid() && !shared && os.Chmod(dir, 0o700) == nil {
		return
	}
	warn(fmt.Sprintf("Others may enter the data directory %s (mode %04o).\n  → set data_dir (PULSE_DATA_DIR) to one that is yours alone, or run `chmod 700 %[1]s`\n",
		dir, info.Mode().Perm()))
}

// readToken reads the token file; one that others may read is refused.
func readToken(c configs.Config) (string, error) {
	info, err := os.Stat(tokenFile(c))
	if err != nil {
		return "", err
	}
	if info.Mode().Perm()&0o077 != 0 {
		return "", &pulse.Error{Code: pulse.CodeInvalid, Message: fmt.Sprintf("others may read the token file %s (mode %04o)", tokenFile(c), info.Mode().Perm()),
			Hint: "run `chmod 600 " + tokenFile(c) + "`; if somebody may have seen it, remove it and start again"}
	}
	b, err := os.ReadFile(tokenFile(c))
	if err != nil {
		return "", err
	}
	token := strings.TrimSpace(string(b))
	if len(token) < 32 {
		return "", pulse.Invalid("the token file "+tokenFile(c)+" is damaged", "remove it; the next start makes a new one")
	}
	return token, nil
}
