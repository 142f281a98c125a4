package chain

import (
	"encoding/json"
	"errors"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/serializer"
	"k8s.io/client-go/kubernetes/scheme"
)

func TestAnswerPanics(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		name    string
		panics  any
		before  func(w http.ResponseWriter)
		aborted bool
	}{
		{"an error", errors.New("oh"), func(http.ResponseWriter) {}, false},
		{"a text with a stack", "oh\ngoroutine 1 [running]:", func(http.ResponseWriter) {}, false},
		{"after a header", "oh", func(w http.ResponseWriter) { w.Header().Set("A", "b") }, false},
		{"after a code", "oh", func(w http.ResponseWriter) { w.WriteHeader(http.StatusOK) }, true},
		{"after a byte", "oh", func(w http.ResponseWriter) { _, _ = w.Write([]byte("b")) }, true},
		{"an abort", http.ErrAbortHandler, func(http.ResponseWriter) {}, true},
	} {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			handler := answerPanics(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
				test.before(w)
				panic(test.panics)
			}), serializer.NewCodecFactory(scheme.Scheme))
			w := httptest.NewRecorder()
			aborted := func() (aborted bool) {
				defer func() { aborted = recover() != nil }()
				handler.ServeHTTP(w, httptest.NewRequest(http.MethodGet, "/", nil))
				return
			}()
			if aborted != test.aborted {
				t.Fatalf("got aborted = %t", aborted)
			}
			if aborted {
				return
			}
			var status metav1.Status
			if err := json.Unmarshal(w.Body.Bytes(), &status); err != nil {
				t.Fatal(err)
			}
			if w.Code != http.StatusInternalServerError ||
				status.Reason != metav1.StatusReasonInternalError ||
				!strings.HasSuffix(status.Message, "panic: oh") {
				t.Errorf("got code %d, status %+v", w.Code, status)
			}
		})
	}
}
