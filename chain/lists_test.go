package chain

import (
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"

	genericapirequest "k8s.io/apiserver/pkg/endpoints/request"
)

// pieces is a ResponseWriter that notes the sizes of what is written.
type pieces struct {
	*httptest.ResponseRecorder
	sizes []int
}

func (p *pieces) Write(b []byte) (int, error) {
	p.sizes = append(p.sizes, len(b))
	return p.ResponseRecorder.Write(b)
}

// CloseNotify implements http.CloseNotifier, as the writers of HTTP servers do.
func (*pieces) CloseNotify() <-chan bool { return nil }

func TestBufferLists(t *testing.T) {
	t.Parallel()
	object := strings.Repeat("o", 500)
	handler := bufferLists(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		for range 10 {
			_, _ = w.Write([]byte(object))
		}
		w.(http.Flusher).Flush()
		for range 200 {
			_, _ = w.Write([]byte(object))
		}
	}))
	for verb, want := range map[string][]int{
		"list":  {5000, listBuffer, 100_000 - listBuffer},
		"watch": slices.Repeat([]int{500}, 210),
	} {
		for range 2 { // a buffer is used again
			w := &pieces{ResponseRecorder: httptest.NewRecorder()}
			r := httptest.NewRequest(http.MethodGet, "/", nil)
			handler.ServeHTTP(w, r.WithContext(genericapirequest.WithRequestInfo(r.Context(),
				&genericapirequest.RequestInfo{Verb: verb})))
			if !slices.Equal(w.sizes, want) {
				t.Errorf("%s: written in pieces of %v bytes, want %v", verb, w.sizes, want)
			}
			if w.Body.String() != strings.Repeat(object, 210) || !w.Flushed {
				t.Errorf("%s: %d bytes, flushed is %t", verb, w.Body.Len(), w.Flushed)
			}
		}
	}
}
