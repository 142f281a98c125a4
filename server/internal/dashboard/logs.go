package dashboard

import (
	"bufio"
	"context"
	"errors"
	"io"
	"net/http"
	"net/url"
	"path"
	"strconv"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/runtime/schema"
)

const (
	// logTail is how many lines there are to begin with. The page keeps twice as many.
	logTail = 1000
	// logLine is the size up to which a line is shown.
	logLine = 4096
	// logEvery is how long lines are collected, and logBatch bounds how many are.
	logEvery = 200 * time.Millisecond
	logBatch = 500
)

var pods = schema.GroupVersionResource{Version: "v1", Resource: "pods"}

// serveLogs streams the log of a container.
func (s *Server) serveLogs(w http.ResponseWriter, r *http.Request) {
	q := r.URL.Query()
	selected, err := selectionOf(q)
	if err == nil && (selected.resource != pods || selected.name == "") {
		err = badInput("A log needs the name of a pod.")
	}
	if err != nil {
		refuse(w, http.StatusBadRequest, err.Error())
		return
	}
	stream := newStream(w)
	ctx, cancel := context.WithCancel(r.Context())
	lines := make(chan string)
	var reading sync.WaitGroup
	defer reading.Wait()
	defer cancel()
	var failed error // read once lines is closed
	reading.Go(func() {
		defer close(lines)
		failed = s.readLog(ctx, selected, q, lines)
	})
	for line := range lines {
		if stream.send("lines", collect(ctx, line, lines)) != nil {
			return
		}
	}
	sentence := ""
	if failed != nil {
		sentence = "The log cannot be read: " + failed.Error()
	}
	_ = stream.send("ended", sentence) // the browser has gone away
}

// collect returns a line with those that follow it soon.
func collect(ctx context.Context, line string, lines <-chan string) []string {
	batch := []string{line}
	enough := time.NewTimer(logEvery)
	defer enough.Stop()
	for len(batch) < logBatch {
		select {
		case line, ok := <-lines:
			if !ok {
				return batch
			}
			batch = append(batch, line)
		case <-enough.C:
			return batch
		case <-ctx.Done():
			return batch
		}
	}
	return batch
}

// readLog sends the lines of a log. If nobody takes them, it waits, and so does the server of the
// log.
func (s *Server) readLog(
	ctx context.Context, selected selection, q url.Values, lines chan<- string,
) error {
	query := url.Values{"tailLines": {strconv.Itoa(logTail)}}
	for _, name := range []string{"container", "previous", "follow"} {
		if value := q.Get(name); value != "" {
			query.Set(name, value)
		}
	}
	body, err := s.open(ctx, path.Join(selected.path(selected.inside), selected.name, "log"),
		query.Encode(), "*/*")
	if err != nil {
		return err
	}
	defer body.Close()
	reader := bufio.NewReaderSize(body, logLine)
	for rest := false; ; {
		line, more, err := reader.ReadLine()
		if errors.Is(err, io.EOF) || ctx.Err() != nil {
			return nil
		}
		if err != nil {
			return err
		}
		if !rest {
			text := string(line)
			if more {
				text += "…"
			}
			select {
			case lines <- text:
			case <-ctx.Done():
				return nil
			}
		}
		rest = more
	}
}
