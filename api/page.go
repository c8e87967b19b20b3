package api

import (
	"embed"
	"net/http"
	"strings"

	"pulseloop/pulse"
)

//go:embed page/index.html page/app.js page/style.css
var pageFiles embed.FS

//go:embed openapi.json
var openAPIDocument []byte

var assetTypes = map[string]string{
	"app.js":    "text/javascript; charset=utf-8",
	"style.css": "text/css; charset=utf-8",
}

// page is a small live list of sessions. The policy lets it load its own
// two files and talk to this server, and nothing else: what agents and chats
// write is shown as text, and could not run if it were not.
func (s *Server) page(w http.ResponseWriter, r *http.Request) {
	// Host was checked before. It is named because older browsers do not
	// count a socket to the same host as 'self'.
	w.Header().Set("Content-Security-Policy", strings.Join([]string{
		"default-src 'none'", "script-src 'self'", "style-src 'self'",
		"connect-src 'self' ws://" + r.Host + " wss://" + r.Host,
		"base-uri 'none'", "form-action 'none'", "frame-ancestors 'none'",
	}, "; "))
	s.file(w, r, "index.html", "text/html; charset=utf-8")
}

func (s *Server) asset(w http.ResponseWriter, r *http.Request) {
	kind, ok := assetTypes[r.PathValue("name")]
	if !ok {
		s.refuse(w, r, pulse.NotFound("there is nothing at "+quote(r.URL.Path), "the page is at /"))
		return
	}
	s.file(w, r, r.PathValue("name"), kind)
}

func (s *Server) file(w http.ResponseWriter, r *http.Request, name, kind string) {
	b, err := pageFiles.ReadFile("page/" + name)
	if err != nil {
		s.refuse(w, r, err)
		return
	}
	w.Header().Set("Content-Type", kind)
	// A failed write means that the caller is gone: nobody to tell.
	_, _ = w.Write(b)
}

// openAPI is the description of everything here.
func (s *Server) openAPI(w http.ResponseWriter, _ *http.Request) {
	w.Header().Set("Content-Type", "application/json; charset=utf-8")
	// A failed write means that the caller is gone: nobody to tell.
	_, _ = w.Write(openAPIDocument)
}
