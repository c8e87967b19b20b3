package telegramtest

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"mime"
	"net/http"
	"strconv"
	"strings"
)

const maxBody = 60 << 20

// param is one value as sent. Forms carry text, JSON bodies carry typed values; typed tells them apart for the spec check.
type param struct {
	text  string
	typed bool // text is JSON as sent, not a form's string
	quote bool // typed and was a JSON string; text is its content
}

type upload struct {
	name string
	data []byte
}

type params struct {
	values map[string]param
	files  map[string]upload
}

// readParams accepts what the real server accepts: query, urlencoded, multipart and JSON.
func readParams(r *http.Request) (params, error) {
	p := params{values: map[string]param{}, files: map[string]upload{}}
	for k, v := range r.URL.Query() {
		p.values[k] = param{text: v[0]}
	}
	if r.Body == nil {
		return p, nil
	}
	body, err := io.ReadAll(io.LimitReader(r.Body, maxBody))
	if err != nil {
		return p, fmt.Errorf("read body: %w", err)
	}
	// Clients exist that announce a multipart body and send none when a method has no parameters.
	if len(body) == 0 {
		return p, nil
	}
	kind, _, _ := mime.ParseMediaType(r.Header.Get("Content-Type"))
	r.Body = io.NopCloser(bytes.NewReader(body))
	switch kind {
	case "application/json":
		return p, p.readJSON(body)
	case "application/x-www-form-urlencoded":
		if err := r.ParseForm(); err != nil {
			return p, fmt.Errorf("parse form: %w", err)
		}
		for k, v := range r.PostForm {
			p.values[k] = param{text: v[0]}
		}
		return p, nil
	case "multipart/form-data":
		return p, p.readMultipart(r)
	}
	return p, fmt.Errorf("unsupported content type %q", kind)
}

func (p params) readJSON(body []byte) error {
	raw := map[string]json.RawMessage{}
	if err := json.Unmarshal(body, &raw); err != nil {
		return fmt.Errorf("parse JSON body: %w", err)
	}
	for k, v := range raw {
		var text string
		if json.Unmarshal(v, &text) == nil && len(v) > 0 && v[0] == '"' {
			p.values[k] = param{text: text, typed: true, quote: true}
			continue
		}
		if string(v) != "null" {
			p.values[k] = param{text: string(v), typed: true}
		}
	}
	return nil
}

func (p params) readMultipart(r *http.Request) error {
	mr, err := r.MultipartReader()
	if err != nil {
		return fmt.Errorf("open multipart: %w", err)
	}
	for {
		part, err := mr.NextPart()
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return fmt.Errorf("read multipart: %w", err)
		}
		data, err := io.ReadAll(part)
		if err != nil {
			return fmt.Errorf("read part %s: %w", part.FormName(), err)
		}
		if part.FileName() != "" {
			p.files[part.FormName()] = upload{name: part.FileName(), data: data}
			continue
		}
		p.values[part.FormName()] = param{text: string(data)}
	}
}

func (p params) has(name string) bool { _, ok := p.values[name]; return ok }

func (p params) str(name string) string { return p.values[name].text }

func (p params) flag(name string) bool { return strings.EqualFold(p.values[name].text, "true") }

func (p params) number(name string) int {
	n, _ := strconv.Atoi(p.values[name].text)
	return n
}

func (p params) chatID() (int64, bool) {
	n, err := strconv.ParseInt(p.values["chat_id"].text, 10, 64)
	return n, err == nil
}

// object decodes a JSON-serialised parameter; absent leaves dst alone.
func (p params) object(name string, dst any) error {
	v, ok := p.values[name]
	if !ok || v.text == "" {
		return nil
	}
	if err := json.Unmarshal([]byte(v.text), dst); err != nil {
		return fmt.Errorf("parse %s: %w", name, err)
	}
	return nil
}

func (p params) plain() map[string]string {
	out := make(map[string]string, len(p.values)+len(p.files))
	for k, v := range p.values {
		out[k] = v.text
	}
	for k, f := range p.files {
		out[k] = "file:" + f.name
	}
	return out
}
