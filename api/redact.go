package api

import (
	"bytes"
	"encoding/json"
)

// redactJSON takes secrets out of every text within encoded JSON. Text by
// text, and decoded: what looks for secrets in the whole could run over a
// closing quote, and misses those that begin after an escaped newline.
func redactJSON(b []byte, redact func(string) string) []byte {
	var out bytes.Buffer
	for len(b) > 0 {
		open := bytes.IndexByte(b, '"')
		if open < 0 {
			break
		}
		end := open + 1
		for b[end] != '"' {
			if b[end] == '\\' {
				end++
			}
			end++
		}
		end++
		out.Write(b[:open])
		out.Write(redactText(b[open:end], redact))
		b = b[end:]
	}
	out.Write(b)
	return out.Bytes()
}

// redactText does it for one quoted text, and leaves one without secrets
// byte for byte as it was.
func redactText(quoted []byte, redact func(string) string) []byte {
	var s string
	if err := json.Unmarshal(quoted, &s); err != nil {
		return quoted
	}
	clean := redact(s)
	if clean == s {
		return quoted
	}
	again, err := json.Marshal(clean)
	if err != nil {
		return []byte(`""`)
	}
	return again
}
