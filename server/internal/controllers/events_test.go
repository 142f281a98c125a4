package controllers

import (
	"context"
	"io"
	"net/http"
	"net/http/httptest"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
)

// An event that is on its way when the loops end is given up, so that none is written when another
// replica has the lease.
func TestEventsEndWithTheLoops(t *testing.T) {
	t.Parallel()
	arrived, ended := make(chan struct{}), make(chan struct{})
	server := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(io.Discard, r.Body) // only then the server notices that the client has gone
		close(arrived)
		<-r.Context().Done() // as a member of etcd that hears nothing
		close(ended)
	}))
	defer server.Close()
	ctx, cancel := context.WithCancel(t.Context())
	client := kubernetes.NewForConfigOrDie(&rest.Config{Host: server.URL})
	e := &events{ctx: ctx, client: client}
	e.recorder("test").Event(&corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "p", Namespace: "n"}},
		corev1.EventTypeNormal, "Reason", "message")
	<-arrived
	cancel()
	select {
	case <-ended:
	case <-time.After(time.Minute):
		t.Error("the event is still on its way")
	}
	e.stop()
}
