package apitest

import (
	"errors"
	"io"
	"net/http"
	"testing"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"

	"github.com/kinproc/kinproc/server"
	"github.com/kinproc/kinproc/server/servertest"
)

// An event is deleted by etcd when its time is over.
func TestEventTTL(t *testing.T) {
	t.Parallel()
	s := servertest.Run(t, func(o *server.Options) {
		o.EventTTL, o.ListenEtcd = 10*time.Minute, "127.0.0.1:0"
	})
	events := kubernetes.NewForConfigOrDie(s.RESTConfig()).CoreV1().Events("default")
	_, err := events.Create(t.Context(),
		&corev1.Event{
			ObjectMeta:     metav1.ObjectMeta{Name: "e"},
			InvolvedObject: corev1.ObjectReference{Namespace: "default"},
		}, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	etcd := etcdClient(t, s, etcdTLS(t, s))
	found, err := etcd.Get(t.Context(), "/registry/events/default/e")
	if err != nil || len(found.Kvs) != 1 {
		t.Fatalf("%v (%v)", found, err)
	}
	lease, err := etcd.TimeToLive(t.Context(), clientv3.LeaseID(found.Kvs[0].Lease))
	if err != nil {
		t.Fatal(err)
	}
	// A lease is for the events of some time, so it lasts a little longer.
	if lease.GrantedTTL < 600 || lease.GrantedTTL > 700 {
		t.Errorf("the event is kept for %d s", lease.GrantedTTL)
	}
}

// A watch that asks for no timeout ends after the shortest time, or up to twice as long.
func TestMinRequestTimeout(t *testing.T) {
	t.Parallel()
	s := servertest.Run(t, func(o *server.Options) { o.MinRequestTimeout = 1 })
	begin := time.Now()
	w, err := kubernetes.NewForConfigOrDie(s.RESTConfig()).CoreV1().ConfigMaps("default").Watch(
		t.Context(), metav1.ListOptions{})
	if err != nil {
		t.Fatal(err)
	}
	for range w.ResultChan() {
	}
	if took := time.Since(begin); took < time.Second {
		t.Errorf("the watch ended after %v", took)
	}
}

// A request that waits for a webhook for too long is answered with a timeout.
func TestRequestTimeout(t *testing.T) {
	t.Parallel()
	// All other requests have to take less, also those of the start.
	s := servertest.Run(t, func(o *server.Options) { o.RequestTimeout = 5 * time.Second })
	url, ca := serveTLS(t, http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(io.Discard, r.Body) // or the context does not end when the client goes
		<-r.Context().Done()
	}))
	client := kubernetes.NewForConfigOrDie(s.RESTConfig())
	_, err := client.AdmissionregistrationV1().ValidatingWebhookConfigurations().Create(t.Context(),
		&admissionregistrationv1.ValidatingWebhookConfiguration{
			ObjectMeta: metav1.ObjectMeta{Name: "slow"},
			Webhooks: []admissionregistrationv1.ValidatingWebhook{{
				Name:         "slow.example.com",
				ClientConfig: admissionregistrationv1.WebhookClientConfig{URL: &url, CABundle: ca},
				Rules: []admissionregistrationv1.RuleWithOperations{{
					Operations: []admissionregistrationv1.OperationType{admissionregistrationv1.Create},
					Rule: admissionregistrationv1.Rule{
						APIGroups: []string{""}, APIVersions: []string{"v1"}, Resources: []string{"secrets"},
					},
				}},
				AdmissionReviewVersions: []string{"v1"},
				TimeoutSeconds:          new(int32(30)),
				SideEffects:             new(admissionregistrationv1.SideEffectClassNone),
			}},
		}, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	// The call of the webhook, the request and its stream end at the same time, so the error is any
	// of three.
	var took time.Duration
	eventually(t, "a timeout", func() error { // the configuration takes effect with a delay
		begin := time.Now()
		_, err := client.CoreV1().Secrets("default").Create(t.Context(),
			&corev1.Secret{ObjectMeta: metav1.ObjectMeta{GenerateName: "s-"}}, metav1.CreateOptions{})
		if took = time.Since(begin); err == nil {
			return errors.New("the request succeeded")
		}
		return nil
	})
	if took > 20*time.Second {
		t.Errorf("the answer came after %v", took)
	}
}
