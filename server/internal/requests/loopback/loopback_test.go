package loopback_test

import (
	"crypto/x509"
	"errors"
	"io"
	"net/http"
	"testing"

	"github.com/kinproc/kinproc/server/internal/requests/loopback"
)

// streaming is a handler whose responses stream.
type streaming struct{ http.HandlerFunc }

func (streaming) Prepare(r *http.Request) (*http.Request, bool) { return r, true }

// A stream that is open when the server stops ends as the handler ends it. It is not complete if
// something has been lost.
func TestStopEndsStreams(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		bytes int
		want  error
	}{
		"all was written": {100, nil},
		"a write is lost": {5 << 20, io.ErrUnexpectedEOF},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			transport := loopback.New()
			begun := make(chan struct{})
			transport.Serve(streaming{func(w http.ResponseWriter, r *http.Request) {
				w.WriteHeader(http.StatusOK)
				close(begun)
				for range c.bytes / 100 {
					if _, err := w.Write(make([]byte, 100)); err != nil {
						return
					}
				}
				<-r.Context().Done()
			}})
			r, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "https://server/", nil)
			if err != nil {
				t.Fatal(err)
			}
			response, err := transport.As(&x509.Certificate{}).RoundTrip(r)
			if err != nil {
				t.Fatal(err)
			}
			defer response.Body.Close()
			<-begun
			transport.Stop()
			if _, err := io.Copy(io.Discard, response.Body); !errors.Is(err, c.want) {
				t.Errorf("got %v, want %v", err, c.want)
			}
		})
	}
}
