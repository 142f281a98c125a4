package apitest

import (
	"crypto/tls"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"testing"

	admissionv1 "k8s.io/api/admission/v1"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"github.com/kinproc/kinproc/chain/trace"
	"github.com/kinproc/kinproc/server"
	"github.com/kinproc/kinproc/server/servertest"
)

// traces collects the traces of a client.
type traces struct {
	mu  sync.Mutex
	all []trace.Traced
}

// client returns a client whose traces are collected.
func (c *traces) client(config *rest.Config) *kubernetes.Clientset {
	trace.Wrap(config, func(t trace.Traced) {
		c.mu.Lock()
		defer c.mu.Unlock()
		c.all = append(c.all, t)
	})
	return kubernetes.NewForConfigOrDie(config)
}

// last returns the steps of the last request.
func (c *traces) last() []trace.Step {
	c.mu.Lock()
	defer c.mu.Unlock()
	if len(c.all) == 0 {
		return nil
	}
	return c.all[len(c.all)-1].Steps
}

// expectSteps checks that the steps contain the wanted ones in this order. Each is given as its
// place and decision, and the beginning of its reason if there is one.
func expectSteps(t *testing.T, steps []trace.Step, want ...string) {
	t.Helper()
	left := want
	var got []string
	for _, s := range steps {
		text := strings.TrimSpace(s.At + ": " + s.Decision + " " + s.Reason)
		got = append(got, text)
		if len(left) > 0 && strings.HasPrefix(text, left[0]) {
			left = left[1:]
		}
	}
	if len(left) > 0 {
		t.Errorf("no step %q among\n%s", left[0], strings.Join(got, "\n"))
	}
}

// tracePatch returns the patch of a plugin.
func tracePatch(steps []trace.Step, plugin string) string {
	i := slices.IndexFunc(steps, func(s trace.Step) bool {
		return s.At == "mutating admission" && s.Reason == plugin
	})
	if i < 0 {
		return ""
	}
	return string(steps[i].Patch)
}

func namedPod(name string) *corev1.Pod {
	return &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Name: name},
		Spec:       corev1.PodSpec{Containers: []corev1.Container{{Name: "main", Image: "image"}}},
	}
}

// The trace of a write tells what happened to the object, over the network and in process.
func TestTraceOfWrites(t *testing.T) {
	t.Parallel()
	s, _ := shared(t)
	for name, config := range map[string]func(string, ...string) (*rest.Config, error){
		"tls": s.User, "in-process": s.InProcessConfig,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			as, err := config("admin", "system:masters")
			if err != nil {
				t.Fatal(err)
			}
			var collected traces
			pods := collected.client(as).CoreV1().Pods(servertest.Namespace(t, s))
			created, err := pods.Create(t.Context(), namedPod("web"), metav1.CreateOptions{})
			if err != nil {
				t.Fatal(err)
			}
			key := "/registry/pods/" + created.Namespace + "/web"
			expectSteps(t, collected.last(), "authentication: admin", "flow control: admitted",
				"authorization: allowed", "aggregator: delegated to core", "core: served", "body: read",
				"decoding: decoded v1", "mutating admission: changed ServiceAccount",
				"mutating admission: changed Priority", "validation: valid", "storage encoding: encoded",
				"etcd: write "+key, "encoding: encoded application/vnd.kubernetes.protobuf")
			if patch := tracePatch(collected.last(), "Priority"); !json.Valid([]byte(patch)) ||
				!strings.Contains(patch, `"path":"/spec/priority"`) {
				t.Errorf("Priority has changed %q", patch)
			}
			wrote := slices.IndexFunc(collected.last(), func(s trace.Step) bool {
				return s.At == "etcd" && s.Decision == "write" &&
					strings.HasSuffix(s.Reason, "at revision "+created.ResourceVersion)
			})
			if wrote < 0 {
				t.Errorf("no write at revision %s", created.ResourceVersion)
			}

			if _, err := pods.Get(t.Context(), "web", metav1.GetOptions{}); err != nil {
				t.Fatal(err)
			}
			expectSteps(t, collected.last(), "etcd: get "+key+": 1 of 1 keys", "storage decoding: decoded",
				"encoding: encoded")
			created.Name, created.ResourceVersion = "worse", ""
			created.Spec.Containers[0].Name = "No name"
			if _, err = pods.Create(t.Context(), created, metav1.CreateOptions{}); !apierrors.IsInvalid(err) {
				t.Fatal(err)
			}
			expectSteps(t, collected.last(), "validation: refused spec.containers[0].name")
		})
	}
}

// Over HTTP/1.1, whose trailers must be small, a trace has no patches.
func TestTraceOverHTTP1(t *testing.T) {
	t.Parallel()
	s, namespace := shared(t)
	config := s.RESTConfig()
	config.NextProtos = []string{"http/1.1"}
	var collected traces
	client := collected.client(config)
	if _, err := client.CoreV1().Pods(namespace).Create(t.Context(), namedPod("web"),
		metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	expectSteps(t, collected.last(), "mutating admission: changed Priority", "etcd: write")
	if patch := tracePatch(collected.last(), "Priority"); patch != "" {
		t.Errorf("the trace has the patch %s", patch)
	}
}

func TestTraceOfRefusingPlugin(t *testing.T) {
	t.Parallel()
	s, namespace := shared(t)
	var collected traces
	client := collected.client(s.RESTConfig())
	if _, err := client.CoreV1().Namespaces().Patch(t.Context(), namespace, types.MergePatchType,
		[]byte(`{"metadata":{"labels":{"pod-security.kubernetes.io/enforce":"restricted"}}}`),
		metav1.PatchOptions{}); err != nil {
		t.Fatal(err)
	}
	// The plugin learns of the label by a watch.
	eventually(t, "the pod is refused", func() error {
		_, err := client.CoreV1().Pods(namespace).Create(t.Context(), namedPod("web"),
			metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}})
		if !apierrors.IsForbidden(err) {
			return fmt.Errorf("not forbidden, but %v", err)
		}
		return nil
	})
	expectSteps(t, collected.last(), "validation: valid", "validating admission: refused PodSecurity")
}

// The trace shows webhooks and how they were reached, but nothing of a secret's data.
func TestTraceOfWebhook(t *testing.T) {
	t.Parallel()
	s := servertest.Run(t)
	labelling(t, s)
	var collected traces
	client := collected.client(s.RESTConfig())
	const data = "hunter2"
	secret, err := client.CoreV1().Secrets("default").Create(t.Context(), &corev1.Secret{
		ObjectMeta: metav1.ObjectMeta{Name: "secret"}, StringData: map[string]string{"password": data},
	}, metav1.CreateOptions{})
	if err != nil || secret.Labels["labelled"] != "true" {
		t.Fatalf("the webhook has not labelled %v (%v)", secret, err)
	}
	expectSteps(t, collected.last(), "mutating admission: changed MutatingAdmissionWebhook",
		"webhook: called labelling/labelling.example.com",
		"connection: ", // net/http says of a new connection of HTTP/2, too, that it is reused
		"TLS: TLS 1.3", "response: begun", "etcd: write /registry/secrets/default/secret")
	steps, err := json.Marshal(collected.last())
	if err != nil {
		t.Fatal(err)
	}
	for _, form := range []string{data, base64.StdEncoding.EncodeToString([]byte(data))} {
		if strings.Contains(string(steps), form) {
			t.Errorf("the trace shows the data of the secret: %s", steps)
		}
	}
	if _, err := client.CoreV1().ConfigMaps("default").Create(t.Context(),
		&corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: "open"}}, metav1.CreateOptions{},
	); err != nil {
		t.Fatal(err)
	}
	const want = `[{"op":"add","path":"/metadata/labels","value":{"labelled":"true"}}]`
	if patch := tracePatch(collected.last(), "MutatingAdmissionWebhook"); patch != want {
		t.Errorf("the webhooks have changed %s, want %s", patch, want)
	}
	steps = nil
	for _, step := range collected.last() {
		if step.At == "webhook" {
			steps = step.Patch
		}
	}
	if string(steps) != want {
		t.Errorf("the webhook has changed %s, want %s", steps, want)
	}
}

// labelling installs and serves a webhook that labels new config maps and secrets.
func labelling(t *testing.T, s *server.Server) {
	t.Helper()
	e := servertest.Webhooks(t, s, servertest.Objects(
		&admissionregistrationv1.MutatingWebhookConfiguration{
			TypeMeta: metav1.TypeMeta{
				APIVersion: admissionregistrationv1.SchemeGroupVersion.String(),
				Kind:       "MutatingWebhookConfiguration",
			},
			ObjectMeta: metav1.ObjectMeta{Name: "labelling"},
			Webhooks: []admissionregistrationv1.MutatingWebhook{{
				Name:                    "labelling.example.com",
				AdmissionReviewVersions: []string{"v1"},
				SideEffects:             new(admissionregistrationv1.SideEffectClassNone),
				ClientConfig: admissionregistrationv1.WebhookClientConfig{
					Service: &admissionregistrationv1.ServiceReference{Namespace: "default", Name: "hook"},
				},
				NamespaceSelector: &metav1.LabelSelector{
					MatchLabels: map[string]string{corev1.LabelMetadataName: "default"},
				},
				// The first call is to be that of the test, not that for kube-root-ca.crt.
				MatchConditions: []admissionregistrationv1.MatchCondition{{
					Name: "clients", Expression: "request.userInfo.username != 'system:apiserver'",
				}},
				Rules: []admissionregistrationv1.RuleWithOperations{{
					Operations: []admissionregistrationv1.OperationType{admissionregistrationv1.Create},
					Rule: admissionregistrationv1.Rule{
						APIGroups: []string{""}, APIVersions: []string{"v1"},
						Resources: []string{"configmaps", "secrets"},
					},
				}},
			}},
		}))
	serveEndpoint(t, e, func(w http.ResponseWriter, r *http.Request) {
		var review admissionv1.AdmissionReview
		if err := json.NewDecoder(r.Body).Decode(&review); err != nil {
			http.Error(w, err.Error(), http.StatusBadRequest)
			return
		}
		review.Response = &admissionv1.AdmissionResponse{
			UID: review.Request.UID, Allowed: true,
			PatchType: new(admissionv1.PatchTypeJSONPatch),
			Patch: []byte(
				`[{"op":"add","path":"/metadata/labels","value":{"labelled":"true"}}]`),
		}
		review.Request = nil
		_ = json.NewEncoder(w).Encode(review)
	})
}

// serveEndpoint serves at an endpoint until the test ends.
func serveEndpoint(t *testing.T, e *servertest.Endpoint, handler http.HandlerFunc) {
	t.Helper()
	l, err := tls.Listen("tcp", e.Addr(), e.TLS)
	if err != nil {
		t.Fatal(err)
	}
	s := &httptest.Server{Listener: l, Config: &http.Server{Handler: handler}}
	s.Start()
	t.Cleanup(s.Close)
	e.Await(t)
}

// The trace of a request for an extension API server shows how the aggregator reached the server.
func TestTraceOfProxy(t *testing.T) {
	t.Parallel()
	s := servertest.Run(t)
	e := servertest.NewEndpoint(t)
	version := schema.GroupVersion{Group: "far.example.com", Version: "v1"}
	serveEndpoint(t, e, func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		fmt.Fprintf(w, `{"kind":"APIResourceList","groupVersion":%q,"resources":[]}`, version)
	})
	servertest.APIService(t, s, e, version)
	var collected traces
	client := collected.client(s.RESTConfig())
	if err := client.RESTClient().Get().AbsPath("/apis/far.example.com/v1/things").Do(t.Context()).
		Error(); err != nil {
		t.Fatal(err)
	}
	expectSteps(t, collected.last(), "authorization: allowed", "aggregator: proxied", "connection: ",
		"response: begun")
}
