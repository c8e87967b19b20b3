package modeltest

import (
	"encoding/json"
	"fmt"
	"net/http"
	"strconv"
	"time"
)

// event is one server-sent event. Responses of both protocols repeat the name as the data's type.
type event struct {
	name string
	data map[string]any
}

// stream sends the events, and hangs or cuts the connection where the fault says so.
func (s *Server) stream(w http.ResponseWriter, r *http.Request, events []event, fault *Fault) {
	w.Header().Set("Content-Type", "text/event-stream")
	w.Header().Set("Cache-Control", "no-cache")
	w.WriteHeader(http.StatusOK)
	flush := http.NewResponseController(w)
	for i, ev := range events {
		if fault != nil && i == fault.After {
			break
		}
		ev.data["type"] = ev.name
		data, err := json.Marshal(ev.data)
		if err != nil {
			s.violate("encode %s: %v", ev.name, err)
			return
		}
		if _, err := fmt.Fprintf(w, "event: %s\ndata: %s\n\n", ev.name, data); err != nil {
			return
		}
		if flush.Flush() != nil {
			return
		}
	}
	if fault == nil {
		return
	}
	if fault.Hang {
		select {
		case <-r.Context().Done():
		case <-s.closed:
		}
	}
	panic(http.ErrAbortHandler)
}

// refuse answers an error status with the provider's body.
func refuse(w http.ResponseWriter, f Fault, body any) {
	if f.RetryAfter > 0 {
		w.Header().Set("Retry-After", strconv.Itoa(int((f.RetryAfter+time.Second-1)/time.Second)))
	}
	writeJSON(w, f.Status, body)
}

func writeJSON(w http.ResponseWriter, status int, body any) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	// The client has gone if this fails; there is nobody left to tell.
	_ = json.NewEncoder(w).Encode(body)
}

// pieces cuts a text in two at a rune border, so that clients see more than one delta.
func pieces(text string) []string {
	runes := []rune(text)
	if len(runes) < 2 {
		return []string{text}
	}
	half := len(runes) / 2
	return []string{string(runes[:half]), string(runes[half:])}
}
