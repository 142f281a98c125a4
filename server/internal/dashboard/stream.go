package dashboard

import (
	"encoding/json"
	"fmt"
	"net/http"
)

// stream sends server-sent events.
type stream struct {
	w http.ResponseWriter
	c *http.ResponseController
}

func newStream(w http.ResponseWriter) *stream {
	w.Header().Set("Content-Type", "text/event-stream")
	s := &stream{w, http.NewResponseController(w)}
	_ = s.c.Flush() // the browser knows that it is connected
	return s
}

// send sends an event. It returns an error if the browser has gone away.
func (s *stream) send(event string, v any) error {
	data, err := json.Marshal(v)
	if err != nil {
		return err
	}
	if _, err := fmt.Fprintf(s.w, "event: %s\ndata: %s\n\n", event, data); err != nil {
		return err
	}
	return s.c.Flush()
}
