package servertest_test

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"

	admissionv1 "k8s.io/api/admission/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/kubernetes"

	"github.com/kinproc/kinproc/chain/fault"
	"github.com/kinproc/kinproc/server"
	"github.com/kinproc/kinproc/server/servertest"
)

// manifests are as controller-gen writes them.
const manifests = `---
apiVersion: admissionregistration.k8s.io/v1
kind: MutatingWebhookConfiguration
metadata:
  name: mutating-webhook-configuration
webhooks:
- admissionReviewVersions: [v1]
  clientConfig:
    service:
      name: webhook-service
      namespace: system
      path: /mutate-hooks-example-com-v1-pipe
  failurePolicy: Fail
  name: mpipe-v1.kb.io
  rules:
  - {apiGroups: [hooks.example.com], apiVersions: [v1], operations: [CREATE], resources: [pipes]}
  sideEffects: None
---
apiVersion: admissionregistration.k8s.io/v1
kind: ValidatingWebhookConfiguration
metadata:
  name: validating-webhook-configuration
webhooks:
- admissionReviewVersions: [v1]
  clientConfig:
    service:
      name: webhook-service
      namespace: system
      path: /validate-hooks-example-com-v1-pipe
  failurePolicy: Fail
  name: vpipe-v1.kb.io
  rules:
  - {apiGroups: [hooks.example.com], apiVersions: [v1], operations: [CREATE], resources: [pipes]}
  sideEffects: None
`

var pipes = schema.GroupVersionResource{
	Group:    "hooks.example.com",
	Version:  "v1",
	Resource: "pipes",
}

// hooks serves the webhooks of the manifests. Mutation sets the label mutated, validation refuses
// names that begin with bad, and conversion sets the label converted.
func hooks() http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("/mutate-hooks-example-com-v1-pipe", review(func(r *admissionv1.AdmissionReview) {
		r.Response.Patch = []byte(
			`[{"op": "add", "path": "/metadata/labels", "value": {"mutated": "yes"}}]`)
		r.Response.PatchType = new(admissionv1.PatchTypeJSONPatch)
	}))
	mux.HandleFunc("/validate-hooks-example-com-v1-pipe", review(func(
		r *admissionv1.AdmissionReview,
	) {
		r.Response.Allowed = !strings.HasPrefix(r.Request.Name, "bad")
	}))
	mux.HandleFunc("/convert", func(w http.ResponseWriter, request *http.Request) {
		var r apiextensionsv1.ConversionReview
		if err := json.NewDecoder(request.Body).Decode(&r); err != nil {
			http.Error(w, err.Error(), http.StatusBadRequest)
			return
		}
		r.Response = &apiextensionsv1.ConversionResponse{
			UID: r.Request.UID, Result: metav1.Status{Status: metav1.StatusSuccess},
		}
		for _, raw := range r.Request.Objects {
			u := &unstructured.Unstructured{}
			if err := u.UnmarshalJSON(raw.Raw); err != nil {
				http.Error(w, err.Error(), http.StatusBadRequest)
				return
			}
			u.SetAPIVersion(r.Request.DesiredAPIVersion)
			labels := u.GetLabels()
			if labels == nil {
				labels = map[string]string{}
			}
			labels["converted"] = "yes"
			u.SetLabels(labels)
			r.Response.ConvertedObjects = append(r.Response.ConvertedObjects,
				runtime.RawExtension{Object: u})
		}
		_ = json.NewEncoder(w).Encode(r) // fails only if the client is gone
	})
	return mux
}

func review(decide func(r *admissionv1.AdmissionReview)) http.HandlerFunc {
	return func(w http.ResponseWriter, request *http.Request) {
		var r admissionv1.AdmissionReview
		if err := json.NewDecoder(request.Body).Decode(&r); err != nil {
			http.Error(w, err.Error(), http.StatusBadRequest)
			return
		}
		r.Response = &admissionv1.AdmissionResponse{UID: r.Request.UID, Allowed: true}
		decide(&r)
		_ = json.NewEncoder(w).Encode(r) // fails only if the client is gone
	}
}

// serve serves at an endpoint until the test ends.
func serve(t *testing.T, e *servertest.Endpoint, handler http.Handler) {
	t.Helper()
	l, err := e.Listen()
	if err != nil {
		t.Fatal(err)
	}
	s := &http.Server{Handler: handler}
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		_ = s.Serve(l) // ends with http.ErrServerClosed
	}()
	t.Cleanup(func() {
		if err := s.Close(); err != nil {
			t.Error(err)
		}
		<-ended
	})
}

func TestWebhooks(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	for name, text := range map[string]string{
		"manifests.yaml":     manifests,
		"service.yaml":       "apiVersion: v1\nkind: Service\nmetadata: {name: webhook-service}",
		"kustomization.yaml": "resources: [manifests.yaml, service.yaml]",
	} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	s := servertest.Run(t)
	e := servertest.Webhooks(t, s,
		servertest.YAML(definition("hooks.example.com", "Pipe", "v1", "v2")), servertest.Files(dir))
	client := dynamic.NewForConfigOrDie(s.RESTConfig()).Resource(pipes).Namespace("default")
	create := func(name string) (*unstructured.Unstructured, error) {
		return client.Create(t.Context(), object("hooks.example.com/v1", "Pipe", name),
			metav1.CreateOptions{})
	}
	// The webhooks take effect before anyone serves them.
	if _, err := create("early"); err == nil || !strings.Contains(err.Error(), "mpipe-v1.kb.io") {
		t.Errorf("without a server: %v", err)
	}
	serve(t, e, hooks())
	if made, err := create("good"); err != nil || made.GetLabels()["mutated"] != "yes" {
		t.Errorf("mutated: %v, %v", made, err)
	}
	if _, err := create("bad"); err == nil || !strings.Contains(err.Error(), "vpipe-v1.kb.io") {
		t.Errorf("validated: %v", err)
	}
	v2 := dynamic.NewForConfigOrDie(s.RESTConfig()).Resource(pipes.GroupResource().WithVersion("v2"))
	got, err := v2.Namespace("default").Get(t.Context(), "good", metav1.GetOptions{})
	if err != nil || got.GetLabels()["converted"] != "yes" || got.GetLabels()["mutated"] != "yes" {
		t.Errorf("converted: %v, %v", got, err)
	}

	// Nothing is left of the probes.
	hookClient := kubernetes.NewForConfigOrDie(s.RESTConfig()).AdmissionregistrationV1()
	mutating, err := hookClient.MutatingWebhookConfigurations().List(t.Context(),
		metav1.ListOptions{})
	if err != nil || len(mutating.Items) != 1 {
		t.Errorf("mutating: %v, %v", mutating, err)
	}
	validating, err := hookClient.ValidatingWebhookConfigurations().List(t.Context(),
		metav1.ListOptions{})
	if err != nil || len(validating.Items) != 1 {
		t.Errorf("validating: %v, %v", validating, err)
	}
}

func TestWebhooksCleanUp(t *testing.T) {
	t.Parallel()
	s := servertest.Run(t)
	var e *servertest.Endpoint
	inner := run(func(f *fake) { e = servertest.Webhooks(f, s, servertest.YAML(manifests)) })
	if inner.failed {
		t.Fatalf("%s", &inner.output)
	}
	if _, err := os.Stat(e.CertDir); !os.IsNotExist(err) {
		t.Errorf("%s: %v", e.CertDir, err)
	}
	client := kubernetes.NewForConfigOrDie(s.RESTConfig()).AdmissionregistrationV1()
	left, err := client.MutatingWebhookConfigurations().List(t.Context(), metav1.ListOptions{})
	if err != nil || len(left.Items) > 0 {
		t.Errorf("left: %v, %v", left, err)
	}
}

func TestWebhooksFail(t *testing.T) {
	t.Parallel()
	c, _ := servertest.Shared(t)
	for text, want := range map[string]string{
		"apiVersion: v1\nkind: Service": "no webhook configuration",

		strings.Replace(manifests, "sideEffects: None", "sideEffects: Some", 1): "sideEffects",
	} {
		source := servertest.YAML(text)
		run(func(t *fake) { servertest.Webhooks(t, c, source) }).wantFailure(t, want)
	}
}

// A conversion webhook that a CRD names is served at its own path.
func TestConversionPath(t *testing.T) {
	t.Parallel()
	s := servertest.Run(t)
	e := servertest.Webhooks(t, s, servertest.YAML(
		definition("paths.example.com", "Way", "v1", "v2")+`
  conversion:
    strategy: Webhook
    webhook:
      conversionReviewVersions: [v1]
      clientConfig: {service: {namespace: system, name: webhook-service, path: /somewhere}}
`))
	called := make(chan string, 1)
	serve(t, e, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		select {
		case called <- r.URL.Path:
		default:
		}
		http.Error(w, "no", http.StatusTeapot)
	}))
	ways := schema.GroupVersionResource{Group: "paths.example.com", Version: "v2", Resource: "ways"}
	_, err := dynamic.NewForConfigOrDie(s.RESTConfig()).Resource(ways).Namespace("default").Create(
		t.Context(), object("paths.example.com/v2", "Way", "w"), metav1.CreateOptions{})
	if err == nil {
		t.Error("the conversion did not fail")
	}
	select {
	case path := <-called:
		if path != "/somewhere" {
			t.Errorf("called at %s", path)
		}
	default:
		t.Errorf("not called: %v", err)
	}
}

func TestAPIService(t *testing.T) {
	t.Parallel()
	c, namespace := servertest.Shared(t)
	version := schema.GroupVersion{Group: "extension.example.com", Version: "v1"}
	resource := version.WithResource("stones")
	client := dynamic.NewForConfigOrDie(c.RESTConfig()).Resource(resource).Namespace(namespace)
	inner := run(func(f *fake) {
		e := servertest.NewEndpoint(f)
		serve(t, e, extension(version))
		servertest.APIService(f, c, e, version)
		list, err := client.List(t.Context(), metav1.ListOptions{})
		if err != nil || len(list.Items) != 1 {
			f.Errorf("list: %v, %v", list, err)
		}
	})
	if inner.failed {
		t.Errorf("%s", &inner.output)
	}
	eventually(t, func(ctx context.Context) error {
		_, err := client.List(ctx, metav1.ListOptions{})
		if !apierrors.IsNotFound(err) {
			return fmt.Errorf("without the APIService: %v, want not found", err)
		}
		return nil
	})
	services, err := kubernetes.NewForConfigOrDie(c.RESTConfig()).CoreV1().Services("default").
		List(t.Context(), metav1.ListOptions{})
	if err != nil || len(services.Items) != 1 {
		t.Errorf("services: %v, %v", services, err)
	}
}

// A client that looks once reaches the server, although the aggregator refuses requests for a
// moment after the APIService is available.
func TestAPIServiceIsReached(t *testing.T) {
	t.Parallel()
	s := servertest.Run(t)
	version := schema.GroupVersion{Group: "extension.example.com", Version: "v1"}
	const refused = 3
	f := servertest.Fault(t, s, fault.Rule{Path: "/apis/" + version.String(), Times: refused},
		fault.Fail(apierrors.NewServiceUnavailable("the aggregator does not know it yet")))
	e := servertest.NewEndpoint(t)
	serve(t, e, extension(version))
	servertest.APIService(t, s, e, version)
	if n := len(f.Hits()); n != refused {
		t.Errorf("%d requests were refused, so the next %d will be", n, refused-n)
	}
}

func TestAPIServiceWithAnotherCertificate(t *testing.T) {
	t.Parallel()
	c, _ := servertest.Shared(t)
	run(func(f *fake) {
		e, other := servertest.NewEndpoint(f), servertest.NewEndpoint(f)
		e.TLS = other.TLS
		serve(t, e, http.NotFoundHandler())
		servertest.APIService(f, c, e, schema.GroupVersion{Group: "b.example.com", Version: "v1"})
	}).wantFailure(t, "not the certificate of the endpoint")
}

// extension is an extension API server with one resource, stones, and one object of it.
func extension(version schema.GroupVersion) http.Handler {
	mux := http.NewServeMux()
	answer := func(path string, body any) {
		mux.HandleFunc(path, func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Type", "application/json")
			_ = json.NewEncoder(w).Encode(body) // fails only if the client is gone
		})
	}
	name := version.String()
	group := metav1.APIGroup{
		TypeMeta: metav1.TypeMeta{Kind: "APIGroup", APIVersion: "v1"}, Name: version.Group,
		Versions: []metav1.GroupVersionForDiscovery{{GroupVersion: name, Version: version.Version}},
	}
	answer("/apis", metav1.APIGroupList{
		TypeMeta: metav1.TypeMeta{Kind: "APIGroupList", APIVersion: "v1"},
		Groups:   []metav1.APIGroup{group},
	})
	answer("/apis/"+version.Group, group)
	answer("/apis/"+name, metav1.APIResourceList{
		TypeMeta:     metav1.TypeMeta{Kind: "APIResourceList", APIVersion: "v1"},
		GroupVersion: name,
		APIResources: []metav1.APIResource{{
			Name: "stones", Namespaced: true, Kind: "Stone", Verbs: metav1.Verbs{"list"},
		}},
	})
	answer("/apis/"+name+"/namespaces/{namespace}/stones", map[string]any{
		"apiVersion": name, "kind": "StoneList", "metadata": map[string]any{},
		"items": []any{object(name, "Stone", "pebble").Object},
	})
	return mux
}

// Without the admission plugins, webhooks never take effect, and the helper says so. It has to wait
// for that, so this test takes long.
func TestWebhooksNeedAdmission(t *testing.T) {
	t.Parallel()
	s := servertest.Run(t, func(o *server.Options) {
		o.Admission = server.NewAdmissionOptions()
		o.Admission.DisablePlugins = []string{"MutatingAdmissionWebhook"}
	})
	run(func(f *fake) { servertest.Webhooks(f, s, servertest.YAML(manifests)) }).
		wantFailure(t, "is the admission plugin for them on?")
}
