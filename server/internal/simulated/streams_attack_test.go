package simulated_test

import (
	"context"
	"crypto/tls"
	"encoding/json"
	"io"
	"net/http"
	"runtime"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/transport"

	"github.com/kinproc/kinproc/server/internal/controllers/workloadtest"
	"github.com/kinproc/kinproc/server/servertest"
)

// streamsOfUser is the documented limit.
const streamsOfUser = 100

// caller sends requests, each over a connection of its own: those of HTTP/2 would read ahead.
type caller struct {
	t      *testing.T
	host   string
	client *http.Client
}

func callerOf(t *testing.T, config *rest.Config) caller {
	t.Helper()
	secure := workloadtest.Must(rest.TLSConfigFor(config))(t)
	secure.NextProtos = nil
	plain := &http.Transport{
		TLSClientConfig: secure, TLSNextProto: map[string]func(string, *tls.Conn) http.RoundTripper{},
		DisableCompression: true, DisableKeepAlives: true,
	}
	t.Cleanup(plain.CloseIdleConnections)
	wrapped := http.RoundTripper(plain)
	if config.Impersonate.UserName != "" {
		wrapped = transport.NewImpersonatingRoundTripper(
			transport.ImpersonationConfig{UserName: config.Impersonate.UserName}, wrapped)
	}
	return caller{t, config.Host, &http.Client{Transport: wrapped}}
}

// open opens a stream, which ends when the test does.
func (c caller) open(path string) *http.Response {
	c.t.Helper()
	r := workloadtest.Must(http.NewRequestWithContext(c.t.Context(), http.MethodGet, c.host+path,
		nil))(c.t)
	answer := workloadtest.Must(c.client.Do(r))(c.t)
	c.t.Cleanup(func() { _ = answer.Body.Close() })
	return answer
}

// refused requires that one more stream is refused, and says why.
func (c caller) refused(path string) {
	c.t.Helper()
	answer := c.open(path)
	var status metav1.Status
	if answer.StatusCode == http.StatusTooManyRequests {
		workloadtest.OK(c.t, json.NewDecoder(answer.Body).Decode(&status))
	}
	if status.Reason != metav1.StatusReasonTooManyRequests || answer.Header.Get("Retry-After") == "" ||
		!strings.Contains(status.Message, `user "alice" has 100`) {
		c.t.Errorf("one more %s: %s, Retry-After: %q, %q", path, answer.Status,
			answer.Header.Get("Retry-After"), status.Message)
	}
}

func heap() int {
	runtime.GC()
	runtime.GC() // what finalizers kept
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return int(m.HeapAlloc)
}

// Clients that follow a log of long lines and read none of it cost little memory, and a user can be
// only so many of them. The test is not parallel, because it measures the heap. It takes as long as
// opening all the streams that a user may have.
func TestAttackFollowedLogOfLongLines(t *testing.T) {
	s := servertest.Run(t, servertest.Workloads)
	admin := workloadtest.Client(t, s)
	workloadtest.Must(admin.CoreV1().Pods("default").Create(t.Context(), &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Name: "long", Annotations: map[string]string{
			"kinproc.dev/log": strings.Repeat("{time}", 43_000), "kinproc.dev/log-rate": "20",
		}},
		Spec: corev1.PodSpec{
			NodeName: "simulated-0", Containers: []corev1.Container{{Name: "c", Image: "example.com/c"}},
		},
	}, metav1.CreateOptions{}))(t)
	workloadtest.Until(t, func(ctx context.Context) string {
		p, err := admin.CoreV1().Pods("default").Get(ctx, "long", metav1.GetOptions{})
		if err != nil {
			return err.Error()
		}
		if p.Status.Phase != corev1.PodRunning {
			return "the pod is " + string(p.Status.Phase)
		}
		return ""
	})
	account := servertest.Account{Namespace: "default", Rules: []rbacv1.PolicyRule{{
		APIGroups: []string{""}, Resources: []string{"pods/log", "pods/exec", "pods/portforward"},
		Verbs: []string{"get"},
	}}}
	account.Name = "bob"
	bob := callerOf(t, servertest.User(t, s, account))
	account.Name = "alice"
	alice := callerOf(t, servertest.User(t, s, account))

	const pod = "/api/v1/namespaces/default/pods/long"
	const path = pod + "/log?follow=true"
	var streams []*http.Response
	follow := func() {
		t.Helper()
		answer := alice.open(path)
		if answer.StatusCode != http.StatusOK {
			t.Fatalf("stream %d: %s", len(streams), answer.Status)
		}
		workloadtest.Must(io.CopyN(io.Discard, answer.Body, 10<<10))(t) // much of a line
		streams = append(streams, answer)
	}
	follow() // so that what one stream needs is there
	before := heap()
	for len(streams) < streamsOfUser {
		follow()
	}
	each := (heap() - before) / (streamsOfUser - 1)
	t.Logf("a stream and its client take %d KiB", each>>10)
	if each > 256<<10 {
		t.Errorf("a stream and its client take %d KiB", each>>10)
	}

	as := rest.CopyConfig(s.RESTConfig())
	as.Impersonate.UserName = "alice"
	for _, more := range []string{
		path, pod + "/log", pod + "/exec?command=true&stdout=true", pod + "/portforward",
	} {
		alice.refused(more)
		callerOf(t, as).refused(more)
	}
	for name, other := range map[string]caller{"bob": bob, "admin": callerOf(t, s.RESTConfig())} {
		if answer := other.open(path); answer.StatusCode != http.StatusOK {
			t.Errorf("%s gets %s because of alice", name, answer.Status)
		}
	}
	workloadtest.OK(t, streams[0].Body.Close())
	workloadtest.Until(t, func(context.Context) string {
		if answer := alice.open(path); answer.StatusCode != http.StatusOK {
			return "after one has ended: " + answer.Status
		}
		return ""
	})
}
