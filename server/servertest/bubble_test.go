package servertest_test

import (
	"strings"
	"testing"
	"testing/synctest"
	"time"

	admissionv1 "k8s.io/api/admission/v1"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"

	"github.com/kinproc/kinproc/server"
	"github.com/kinproc/kinproc/server/servertest"
)

const refusingHook = `
apiVersion: admissionregistration.k8s.io/v1
kind: ValidatingWebhookConfiguration
metadata: {name: refuses}
webhooks:
- name: refuses.example.com
  admissionReviewVersions: [v1]
  sideEffects: None
  clientConfig: {service: {name: s, namespace: default, path: /refuse}}
  rules:
  - {apiGroups: [""], apiVersions: [v1], operations: [CREATE], resources: [secrets]}
`

// In a bubble, time passes as soon as everything waits, and all that a test needs works.
func TestInBubble(t *testing.T) {
	t.Parallel()
	for _, name := range []string{"one", "another"} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, inBubble)
		})
	}
	t.Run("outside", func(t *testing.T) {
		t.Parallel()
		s := servertest.Run(t)
		servertest.Namespace(t, s)
	})
}

func inBubble(t *testing.T) {
	begin := time.Now()
	s := servertest.Run(t, servertest.InBubble, servertest.Workloads)
	if took := time.Since(begin); took > time.Minute {
		t.Errorf("the start took %v of the bubble's time", took)
	}
	servertest.CRDs(t, s, servertest.YAML(widgets))
	namespace := servertest.Namespace(t, s)
	servertest.Apply(t, s, namespace, servertest.YAML(deployment))
	serve(t, servertest.Webhooks(t, s, servertest.YAML(refusingHook)),
		review(func(r *admissionv1.AdmissionReview) { r.Response.Allowed = false }))
	version := schema.GroupVersion{Group: "ext.example.com", Version: "v1"}
	e := servertest.NewEndpoint(t, s)
	serve(t, e, extension(version))
	servertest.APIService(t, s, e, version)

	viewer := kubernetes.NewForConfigOrDie(servertest.User(t, s, servertest.Account{
		Name: "jane", ClusterRole: "view",
	}))
	seen := watchDeployment(t, viewer, namespace)
	time.Sleep(time.Hour)
	synctest.Wait()
	if !seen() {
		t.Error("the deployment is not ready after an hour")
	}
	_, err := viewer.CoreV1().Secrets(namespace).List(t.Context(), metav1.ListOptions{})
	if !apierrors.IsForbidden(err) {
		t.Errorf("list secrets: %v", err)
	}
	versions := servertest.History(t, s, appsv1.SchemeGroupVersion.WithResource("deployments"), namespace, "d")
	if len(versions) < 2 || versions[0].Time == nil || time.Since(*versions[0].Time) < 59*time.Minute {
		t.Errorf("the history of the deployment: %+v", versions)
	}
	client := kubernetes.NewForConfigOrDie(s.RESTConfig())
	node, err := client.CoreV1().Nodes().Get(t.Context(), "simulated-0", metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range node.Status.Conditions {
		if c.Type == corev1.NodeReady && c.Status != corev1.ConditionTrue {
			t.Errorf("the node is not ready after an hour: %s", c.Message)
		}
	}
	_, err = client.CoreV1().Secrets(namespace).Create(t.Context(),
		&corev1.Secret{ObjectMeta: metav1.ObjectMeta{Name: "s"}}, metav1.CreateOptions{})
	if err == nil || !strings.Contains(err.Error(), "refuses.example.com") {
		t.Errorf("create a secret: %v", err)
	}
	snapshot, err := s.Snapshot(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	err = client.CoreV1().Namespaces().Delete(t.Context(), namespace, metav1.DeleteOptions{})
	if err != nil {
		t.Fatal(err)
	}
	time.Sleep(time.Minute)
	if err := s.Reset(t.Context(), snapshot); err != nil {
		t.Fatal(err)
	}
	fork := servertest.Run(t, servertest.InBubble, servertest.From(snapshot))
	for _, s := range []*server.Server{s, fork} {
		_, err := dynamic.NewForConfigOrDie(s.RESTConfig()).Resource(schema.GroupVersionResource{
			Group: "apps", Version: "v1", Resource: "deployments",
		}).Namespace(namespace).Get(t.Context(), "d", metav1.GetOptions{})
		if err != nil {
			t.Error(err)
		}
	}
}

const widgets = `
apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
metadata: {name: widgets.example.com}
spec:
  group: example.com
  names: {kind: Widget, plural: widgets}
  scope: Namespaced
  versions:
  - {name: v1, served: true, storage: true, schema: {openAPIV3Schema: {type: object}}}
`

const deployment = `
apiVersion: apps/v1
kind: Deployment
metadata: {name: d}
spec:
  replicas: 2
  selector: {matchLabels: {app: d}}
  template:
    metadata: {labels: {app: d}}
    spec: {containers: [{name: c, image: i}]}
`

// watchDeployment starts an informer, and returns a function that reports whether the deployment
// was ready.
func watchDeployment(t *testing.T, c kubernetes.Interface, namespace string) (ready func() bool) {
	factory := informers.NewSharedInformerFactoryWithOptions(c, time.Hour,
		informers.WithNamespace(namespace))
	lister := factory.Apps().V1().Deployments().Lister()
	factory.Start(t.Context().Done())
	t.Cleanup(factory.Shutdown)
	factory.WaitForCacheSync(t.Context().Done())
	return func() bool {
		d, err := lister.Deployments(namespace).Get("d")
		return err == nil && d.Status.ReadyReplicas == 2
	}
}

// A control plane with sockets would stop the time of the bubble, so it is refused.
func TestInBubbleWithoutOption(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		run(func(f *fake) { servertest.Run(inTest{f, t}) }).wantFailure(t, "servertest.InBubble")
		run(func(f *fake) { servertest.Shared(inTest{f, t}) }).wantFailure(t, "servertest.InBubble")
	})
}

// inTest is a test with the deadline of another.
type inTest struct {
	*fake
	t *testing.T
}

func (t inTest) Deadline() (time.Time, bool) { return t.t.Deadline() }
