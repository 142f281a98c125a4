package looptest

import (
	"context"
	"crypto/tls"
	"net/http"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/kinproc/kinproc/server/internal/controllers/workloadtest"
	"github.com/kinproc/kinproc/server/servertest"
)

// hangingExtension registers an extension API server that says which resource it has and answers
// nothing else.
func hangingExtension(t *testing.T, s servertest.API, version schema.GroupVersion) {
	t.Helper()
	e := servertest.NewEndpoint(t)
	listener, err := tls.Listen("tcp", e.Addr(), e.TLS)
	workloadtest.OK(t, err)
	extension := &http.Server{
		ReadHeaderTimeout: time.Minute,
		Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			switch r.URL.Path {
			case "/apis/" + version.String():
				w.Header().Set("Content-Type", "application/json")
				_, _ = w.Write([]byte(`{"kind":"APIResourceList","apiVersion":"v1","groupVersion":"` +
					version.String() + `","resources":[{"name":"hangs","kind":"Hang","namespaced":true,` +
					`"verbs":["delete","deletecollection","list","watch"]}]}`))
			case "/apis", "/apis/" + version.Group, "/openapi/v2", "/openapi/v3":
				http.NotFound(w, r)
			default:
				<-r.Context().Done()
			}
		}),
	}
	done := make(chan struct{})
	go func() {
		defer close(done)
		_ = extension.Serve(listener) // ends with Close
	}()
	t.Cleanup(func() {
		_ = extension.Close()
		<-done
	})
	servertest.APIService(t, s, e, version)
}

// TestHangingExtension has an extension API server that never answers. The loops go on with what
// has nothing to do with it, and say what they wait for. That takes seconds, because an extension
// API server may be slow.
func TestHangingExtension(t *testing.T) {
	t.Parallel()
	s := servertest.Run(t)
	client, ctx := workloadtest.Client(t, s), t.Context()
	version := schema.GroupVersion{Group: "hang.example.com", Version: "v1"}
	hangingExtension(t, s, version)
	for _, name := range []string{"waits", "goes-on"} {
		workloadtest.Must(client.CoreV1().Namespaces().Create(ctx, &corev1.Namespace{
			ObjectMeta: metav1.ObjectMeta{Name: name},
		}, metav1.CreateOptions{}))(t)
	}
	quota := func(namespace string, counted corev1.ResourceName) {
		t.Helper()
		workloadtest.Must(client.CoreV1().ResourceQuotas(namespace).Create(ctx, &corev1.ResourceQuota{
			ObjectMeta: metav1.ObjectMeta{Name: "q"},
			Spec: corev1.ResourceQuotaSpec{Hard: corev1.ResourceList{
				counted: resource.MustParse("5"), "configmaps": resource.MustParse("5"),
			}},
		}, metav1.CreateOptions{}))(t)
	}
	quota("waits", "count/hangs.hang.example.com")
	for _, counted := range []corev1.ResourceName{"secrets", "services"} {
		quota("goes-on", counted)
		workloadtest.Await(t, "the quota of "+string(counted),
			func(ctx context.Context) (*corev1.ResourceQuota, error) {
				return client.CoreV1().ResourceQuotas("goes-on").Get(ctx, "q", metav1.GetOptions{})
			}, func(q *corev1.ResourceQuota) bool {
				used, ok := q.Status.Used[counted]
				return ok && used.IsZero()
			})
		workloadtest.OK(t, client.CoreV1().ResourceQuotas("goes-on").Delete(ctx, "q",
			metav1.DeleteOptions{}))
	}
	workloadtest.Await(t, "what can be counted of the other quota",
		func(ctx context.Context) (*corev1.ResourceQuota, error) {
			return client.CoreV1().ResourceQuotas("waits").Get(ctx, "q", metav1.GetOptions{})
		}, func(q *corev1.ResourceQuota) bool {
			used := q.Status.Used["configmaps"]
			return used.Value() == 1 // kube-root-ca.crt
		})

	begun := time.Now()
	workloadtest.OK(t, client.CoreV1().Namespaces().Delete(ctx, "waits", metav1.DeleteOptions{}))
	workloadtest.Await(t, "what the namespace waits for",
		func(ctx context.Context) (*corev1.Namespace, error) {
			return client.CoreV1().Namespaces().Get(ctx, "waits", metav1.GetOptions{})
		}, namespaceSays(corev1.NamespaceDeletionContentFailure, corev1.ConditionTrue,
			"ContentDeletionFailed"))
	if took := time.Since(begun); took > 30*time.Second {
		t.Errorf("the namespace said after %s what it waits for", took)
	}
	if list := workloadtest.Must(client.CoreV1().ConfigMaps("waits").List(ctx,
		metav1.ListOptions{}))(t); len(list.Items) > 0 {
		t.Errorf("%d config maps are left", len(list.Items))
	}
}
