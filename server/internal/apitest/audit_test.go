package apitest

import (
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	auditinternal "k8s.io/apiserver/pkg/apis/audit"
	"k8s.io/client-go/kubernetes"

	"github.com/kinproc/kinproc/server"
	"github.com/kinproc/kinproc/server/servertest"
)

// auditBackend keeps the events that it receives.
type auditBackend struct {
	mu     sync.Mutex
	events []*auditinternal.Event
}

func (b *auditBackend) ProcessEvents(events ...*auditinternal.Event) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, e := range events {
		b.events = append(b.events, e.DeepCopy())
	}
	return true
}

func (b *auditBackend) Run(<-chan struct{}) error { return nil }
func (b *auditBackend) Shutdown()                 {}
func (b *auditBackend) String() string            { return "test" }

// all returns what text says about each event, and leaves out events without text.
func (b *auditBackend) all(text func(*auditinternal.Event) string) []string {
	b.mu.Lock()
	defer b.mu.Unlock()
	var all []string
	for _, e := range b.events {
		if s := text(e); s != "" {
			all = append(all, s)
		}
	}
	return all
}

func TestAuditBackend(t *testing.T) {
	t.Parallel()
	const uri = "/api/v1/namespaces/default/secrets"
	dir := t.TempDir()
	policy, log := filepath.Join(dir, "policy.yaml"), filepath.Join(dir, "audit.log")
	rules := "apiVersion: audit.k8s.io/v1\nkind: Policy\nrules: [{level: RequestResponse}]\n"
	if err := os.WriteFile(policy, []byte(rules), 0o600); err != nil {
		t.Fatal(err)
	}
	withPolicy := func(o *server.Options) {
		o.Audit = server.NewAuditOptions()
		o.Audit.PolicyFile, o.Audit.LogOptions.Path, o.Audit.LogOptions.MaxSize = policy, log, 0
	}
	for name, test := range map[string]struct {
		configure func(*server.Options)
		want      string
	}{
		"default policy": {func(*server.Options) {}, "Metadata ResponseComplete " + uri},
		"policy file":    {withPolicy, "RequestResponse ResponseComplete " + uri},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			backend := &auditBackend{}
			s := servertest.Run(t, test.configure, func(o *server.Options) { o.AuditBackend = backend })
			client := kubernetes.NewForConfigOrDie(s.RESTConfig())
			if _, err := client.CoreV1().Secrets("default").List(t.Context(),
				metav1.ListOptions{}); err != nil {
				t.Fatal(err)
			}
			if err := s.Stop(t.Context()); err != nil { // after it, all events have been delivered
				t.Fatal(err)
			}
			got := strings.Join(backend.all(func(e *auditinternal.Event) string {
				return string(e.Level) + " " + string(e.Stage) + " " + e.RequestURI
			}), "\n")
			if !strings.Contains(got, test.want) {
				t.Errorf("%q is missing from\n%s", test.want, got)
			}
			if name == "default policy" {
				if strings.Contains(got, "flowcontrol") {
					t.Errorf("flow control is in\n%s", got)
				}
				return
			}
			logged, err := os.ReadFile(log)
			if err != nil || !strings.Contains(string(logged), uri) {
				t.Errorf("the log file has %.1000s, %v", logged, err)
			}
		})
	}
}
