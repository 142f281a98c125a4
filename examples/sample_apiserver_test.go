package examples_test

import (
	"bytes"
	"context"
	"encoding/base64"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/dynamic/dynamicinformer"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/util/cert"
	basecompatibility "k8s.io/component-base/compatibility"
	apiregistrationv1 "k8s.io/kube-aggregator/pkg/apis/apiregistration/v1"
	aggregatorclientset "k8s.io/kube-aggregator/pkg/client/clientset_generated/clientset"
	wardleserver "k8s.io/sample-apiserver/pkg/cmd/server"

	"github.com/kinproc/kinproc/examples/kubectl"
	"github.com/kinproc/kinproc/server"
	"github.com/kinproc/kinproc/server/servertest"
)

// wardle is sample-apiserver, whose objects are in the control plane's etcd. It can be stopped and
// restarted.
type wardle struct {
	t          *testing.T
	addr       string
	kubeconfig string
	etcd       []string // flags
	certFile   string
	keyFile    string
	// CABundle verifies the server's certificate.
	CABundle []byte
	process  *exec.Cmd // nil unless it runs
	said     *bytes.Buffer
}

// newWardle starts the server. Its user has exactly the permissions that sample-apiserver's
// documentation grants.
func newWardle(t *testing.T, s *server.Server, k *kubectl.Kubectl) *wardle {
	t.Helper()
	dir := t.TempDir()
	k.Apply(wardleRights)
	config, err := s.User("wardle-server")
	if err != nil {
		t.Fatal(err)
	}
	w := &wardle{
		t:          t,
		kubeconfig: servertest.Kubeconfig(t, config),
		certFile:   filepath.Join(dir, "tls.crt"),
		keyFile:    filepath.Join(dir, "tls.key"),
	}
	var key []byte
	if w.CABundle, key, err = cert.GenerateSelfSignedCertKey("api.wardle.svc", nil,
		[]string{"localhost"}); err != nil {
		t.Fatal(err)
	}
	for file, data := range map[string][]byte{w.certFile: w.CABundle, w.keyFile: key} {
		if err := os.WriteFile(file, data, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	w.etcd = etcdFlags(s)
	free := listenAside(t)
	w.addr = free.Addr().String()
	if err := free.Close(); err != nil {
		t.Fatal(err)
	}
	w.start()
	t.Cleanup(w.stop)
	return w
}

// withEtcd makes the control plane's etcd serve other servers too.
func withEtcd(o *server.Options) { o.ListenEtcd = "127.0.0.1:0" }

// etcdFlags returns the flags with which a server stores its objects in the control plane's etcd.
func etcdFlags(s *server.Server) []string {
	ca, cert, key := s.EtcdClientFiles()
	return []string{
		"--etcd-servers=" + s.EtcdEndpoints()[0], "--etcd-cafile=" + ca, "--etcd-certfile=" + cert,
		"--etcd-keyfile=" + key,
	}
}

// wardleVariable makes the test binary act as sample-apiserver, with the listener that it inherits.
const wardleVariable = "EXAMPLES_TEST_WARDLE"

func runWardle(args []string) error {
	l, err := net.FileListener(os.NewFile(3, "listener"))
	if err != nil {
		return err
	}
	options := wardleserver.NewWardleServerOptions(io.Discard, os.Stderr)
	options.ComponentGlobalsRegistry = basecompatibility.NewComponentGlobalsRegistry()
	options.RecommendedOptions.SecureServing.Listener = l
	cmd := wardleserver.NewCommandStartWardleServer(context.Background(), options, true)
	cmd.SetArgs(args)
	return cmd.Execute()
}

// start starts the server, in a process of its own: k8s.io/apiserver follows the authorities of
// clients before its TLS configuration is complete, which the race detector may notice.
func (w *wardle) start() {
	w.t.Helper()
	l, err := net.Listen("tcp", w.addr)
	if err != nil {
		w.t.Fatal(err)
	}
	defer l.Close()
	w.addr = l.Addr().String()
	inherited, err := l.(*net.TCPListener).File()
	if err != nil {
		w.t.Fatal(err)
	}
	defer inherited.Close()
	w.process = exec.Command(os.Args[0], append([]string{
		"--kubeconfig=" + w.kubeconfig, "--authentication-kubeconfig=" + w.kubeconfig,
		"--authorization-kubeconfig=" + w.kubeconfig, "--tls-cert-file=" + w.certFile,
		"--tls-private-key-file=" + w.keyFile,
	}, w.etcd...)...)
	w.process.Env = append(os.Environ(), wardleVariable+"=true")
	w.process.ExtraFiles = []*os.File{inherited}
	w.said = &bytes.Buffer{}
	w.process.Stderr = w.said
	if err := w.process.Start(); err != nil {
		w.t.Fatal(err)
	}
}

// stop kills the server, which otherwise waits for a minute.
func (w *wardle) stop() {
	w.t.Helper()
	if w.process == nil {
		return
	}
	if err := w.process.Process.Kill(); err != nil {
		w.t.Errorf("sample-apiserver: %v", err)
	}
	_ = w.process.Wait() // it was killed
	w.process = nil
	if w.t.Failed() {
		w.t.Logf("sample-apiserver: %s", w.said)
	}
}

func (w *wardle) registration() string {
	_, port, err := net.SplitHostPort(w.addr)
	if err != nil {
		w.t.Fatal(err)
	}
	return fmt.Sprintf(wardleRegistration, port, base64.StdEncoding.EncodeToString(w.CABundle))
}

// awaitAvailable waits until the Available condition of an APIService has the given status, and
// returns the condition.
func awaitAvailable(
	t *testing.T, s *server.Server, name string, status apiregistrationv1.ConditionStatus,
) apiregistrationv1.APIServiceCondition {
	t.Helper()
	client, err := aggregatorclientset.NewForConfig(s.RESTConfig())
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), timeout)
	defer cancel()
	w, err := client.ApiregistrationV1().APIServices().Watch(ctx,
		metav1.ListOptions{FieldSelector: "metadata.name=" + name})
	if err != nil {
		t.Fatal(err)
	}
	defer w.Stop()
	var last any
	for e := range w.ResultChan() {
		a, ok := e.Object.(*apiregistrationv1.APIService)
		if !ok {
			t.Fatalf("watch APIServices: %v", apierrors.FromObject(e.Object))
		}
		last = a.Status
		for _, c := range a.Status.Conditions {
			if c.Type == apiregistrationv1.Available && c.Status == status {
				return c
			}
		}
	}
	t.Fatalf("%s is not Available=%s: %v", name, status, last)
	panic("unreachable")
}

func TestSampleAPIServer(t *testing.T) {
	t.Parallel()
	s := servertest.Run(t, withEtcd, patient)
	k := kubectl.New(t, s)
	w := newWardle(t, s, k)
	k.Apply(w.registration())
	awaitAvailable(t, s, wardleService, apiregistrationv1.ConditionTrue)

	t.Run("clients", func(t *testing.T) { testWardleClients(t, s) })
	t.Run("documents", func(t *testing.T) { testWardleDocuments(t, s) })
	t.Run("kubectl", func(t *testing.T) { testWardleKubectl(t, kubectl.New(t, s)) })
	t.Run("users", func(t *testing.T) { testWardleUsers(t, s, w) })

	// Stop the server. Only its own API becomes unavailable. Then start it again.
	w.stop()
	flunders := dynamic.NewForConfigOrDie(s.RESTConfig()).Resource(flunders).Namespace("default")
	if _, err := flunders.List(t.Context(),
		metav1.ListOptions{}); !apierrors.IsServiceUnavailable(err) {
		t.Errorf("list from a server that is down: %v, want 503", err)
	}
	if c := awaitAvailable(t, s, wardleService, apiregistrationv1.ConditionFalse); c.Reason !=
		"FailedDiscoveryCheck" {
		t.Errorf("not available with reason %s: %s, want FailedDiscoveryCheck", c.Reason, c.Message)
	}
	if _, err := flunders.List(t.Context(),
		metav1.ListOptions{}); !apierrors.IsServiceUnavailable(err) {
		t.Errorf("list from a server that is known to be down: %v, want 503", err)
	}
	k.Run("get", "namespaces")
	k.Run("create", "configmap", "unharmed")
	w.start()
	awaitAvailable(t, s, wardleService, apiregistrationv1.ConditionTrue)
	// The aggregator may learn of a change after this client.
	eventually := func(when, want string, is func(error) bool) {
		t.Helper()
		var got error
		err := wait.PollUntilContextTimeout(t.Context(), 10*time.Millisecond, timeout, true,
			func(ctx context.Context) (bool, error) {
				_, got = flunders.Get(ctx, "first", metav1.GetOptions{})
				return is(got), nil
			})
		if err != nil {
			t.Errorf("%s: %v, want %s", when, got, want)
		}
	}
	eventually("after the server came back", "the object", func(err error) bool { return err == nil })
	k.Run("delete", "apiservice", wardleService)
	eventually("without an APIService", "404", apierrors.IsNotFound)
}

// sample-apiserver under test, with the helpers of servertest for everything that is not its own.
func TestExtensionUnderTest(t *testing.T) {
	t.Parallel()
	s := servertest.Run(t, withEtcd)
	servertest.Apply(t, s, "", servertest.YAML(wardleRights))
	e := servertest.NewEndpoint(t)
	w := &wardle{
		t: t, addr: e.Addr(), etcd: etcdFlags(s),
		kubeconfig: servertest.Kubeconfig(t, servertest.User(t, s, servertest.Account{
			Name: "wardle-server", ClusterRole: "wardle-server",
		})),
		certFile: filepath.Join(e.CertDir, "tls.crt"), keyFile: filepath.Join(e.CertDir, "tls.key"),
	}
	w.start()
	t.Cleanup(w.stop)
	servertest.APIService(t, s, e, flunders.GroupVersion())

	client := dynamic.NewForConfigOrDie(s.RESTConfig()).Resource(flunders).Namespace("default")
	if _, err := client.Create(t.Context(), flunder("first"), metav1.CreateOptions{}); err != nil {
		t.Error(err)
	}
}

const wardleService = "v1alpha1.wardle.example.com"

var flunders = schema.GroupVersionResource{
	Group:    "wardle.example.com",
	Version:  "v1alpha1",
	Resource: "flunders",
}

func flunder(name string) *unstructured.Unstructured {
	return &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": "wardle.example.com/v1alpha1", "kind": "Flunder",
		"metadata": map[string]any{"name": name},
		"spec":     map[string]any{"reference": "other"},
	}}
}

// testWardleClients creates, watches, deletes and lists flunders with client-go and its informers.
func testWardleClients(t *testing.T, s *server.Server) {
	client := dynamic.NewForConfigOrDie(s.RESTConfig())
	added, gone := make(chan string, 10), make(chan string, 10)
	factory := dynamicinformer.NewDynamicSharedInformerFactory(client, 0)
	if _, err := factory.ForResource(flunders).Informer().
		AddEventHandler(cache.ResourceEventHandlerFuncs{
			AddFunc:    func(o any) { added <- o.(*unstructured.Unstructured).GetName() },
			DeleteFunc: func(o any) { gone <- o.(*unstructured.Unstructured).GetName() },
		}); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	factory.Start(ctx.Done())
	defer factory.Shutdown()
	defer cancel()
	factory.WaitForCacheSync(ctx.Done())

	resource := client.Resource(flunders).Namespace("default")
	for _, name := range []string{"first", "second"} {
		made, err := resource.Create(t.Context(), flunder(name), metav1.CreateOptions{})
		if err != nil {
			t.Fatal(err)
		}
		if kind, _, _ := unstructured.NestedString(made.Object,
			"spec", "referenceType"); kind != "Flunder" {
			t.Errorf("%s: the default of spec.referenceType is %q", name, kind)
		}
		await(t, added, name)
	}
	if err := resource.Delete(t.Context(), "second", metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	await(t, gone, "second")
	list, err := resource.List(t.Context(), metav1.ListOptions{})
	if err != nil || len(list.Items) != 1 || list.Items[0].GetName() != "first" {
		t.Errorf("list: %v, %v", list, err)
	}
}

func await(t *testing.T, values <-chan string, want string) {
	t.Helper()
	select {
	case got := <-values:
		if got != want {
			t.Fatalf("got %s, want %s", got, want)
		}
	case <-time.After(timeout):
		t.Fatalf("timed out waiting for %s", want)
	}
}

func testWardleKubectl(t *testing.T, k *kubectl.Kubectl) {
	for _, test := range []struct {
		args []string
		want []string
	}{
		{[]string{"get", "flunders"}, []string{"NAME", "first"}},
		{[]string{"get", "flunder", "first", "-o", "jsonpath={.spec.reference}"}, []string{"other"}},
		{
			[]string{"explain", "flunder.spec"},
			[]string{"wardle.example.com", "referenceType", "<string>"},
		},
		{[]string{"explain", "fischer", "--output=plaintext-openapiv2"}, []string{"disallowedFlunders"}},
		{[]string{"api-resources", "--api-group=wardle.example.com"}, []string{"flunders", "fischers"}},
		{[]string{"api-versions"}, []string{"wardle.example.com/v1alpha1", "apps/v1"}},
		{[]string{"get", "apiservice", wardleService}, []string{"wardle/api", "True"}},
	} {
		out := k.Run(test.args...)
		for _, want := range test.want {
			if !strings.Contains(out, want) {
				t.Errorf("kubectl %s: %q is missing from\n%s", strings.Join(test.args, " "), want, out)
			}
		}
	}
}

// testWardleDocuments checks that the merged discovery and OpenAPI documents include the extension
// API server's part.
func testWardleDocuments(t *testing.T, s *server.Server) {
	const v2 = "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList"
	client, err := rest.HTTPClientFor(s.RESTConfig())
	if err != nil {
		t.Fatal(err)
	}
	for _, test := range []struct{ path, accept, want string }{
		{"/apis", "application/json", `"name":"wardle.example.com"`},
		{"/apis", v2, `"kind":"Flunder"`},
		{"/apis", v2, `"kind":"Deployment"`},
		{"/apis/wardle.example.com", "application/json", `"preferredVersion"`},
		{"/apis/wardle.example.com/v1alpha1", "application/json", `"name":"flunders"`},
		{"/openapi/v2", "application/json", "wardle.v1alpha1.Flunder"},
		{"/openapi/v2", "application/json", "io.k8s.api.apps.v1.Deployment"},
		{"/openapi/v3", "application/json", "apis/wardle.example.com/v1alpha1"},
		{"/openapi/v3/apis/wardle.example.com/v1alpha1", "application/json", "FlunderSpec"},
	} {
		var body []byte
		err := wait.PollUntilContextTimeout(t.Context(), 20*time.Millisecond, timeout, true,
			func(ctx context.Context) (bool, error) {
				request, err := http.NewRequestWithContext(ctx, http.MethodGet, s.URL()+test.path, nil)
				if err != nil {
					return false, err
				}
				request.Header.Set("Accept", test.accept)
				response, err := client.Do(request)
				if err != nil {
					return false, err
				}
				defer response.Body.Close()
				if body, err = io.ReadAll(response.Body); err != nil {
					return false, err
				}
				return bytes.Contains(body, []byte(test.want)), nil
			})
		if err != nil {
			t.Errorf("%s as %s: %v, %s is missing from %.3000s",
				test.path, test.accept, err, test.want, body)
		}
	}
}

// testWardleUsers sends requests of several users through kinproc, which authorizes them, and
// directly to the extension API server, which has to ask kinproc.
func testWardleUsers(t *testing.T, s *server.Server, w *wardle) {
	k := kubectl.New(t, s)
	k.Run("create", "clusterrole", "flunder-reader", "--verb=list",
		"--resource=flunders.wardle.example.com")
	k.Run("create", "clusterrolebinding", "flunder-reader", "--clusterrole=flunder-reader",
		"--user=reader", "--serviceaccount=default:reader")
	k.Run("create", "serviceaccount", "reader")
	token := strings.TrimSpace(k.Run("create", "token", "reader"))
	user := func(name string) *rest.Config {
		c, err := s.User(name)
		if err != nil {
			t.Fatal(err)
		}
		return c
	}
	direct := func(c *rest.Config) *rest.Config {
		c.Host, c.CAData, c.ServerName = "https://"+w.addr, w.CABundle, "api.wardle.svc"
		return c
	}
	bearer := &rest.Config{
		Host:            s.URL(),
		BearerToken:     token,
		TLSClientConfig: rest.TLSClientConfig{CAData: s.RESTConfig().CAData},
	}
	for _, test := range []struct {
		name   string
		config *rest.Config
		want   func(error) bool
	}{
		{"reader", user("reader"), isNil},
		{"stranger", user("stranger"), apierrors.IsForbidden},
		{"service account", bearer, isNil},
		{"reader, direct", direct(user("reader")), isNil},
		{"stranger, direct", direct(user("stranger")), apierrors.IsForbidden},
		{"service account, direct", direct(rest.CopyConfig(bearer)), isNil},
		{"wrong token, direct", direct(&rest.Config{BearerToken: "wrong"}), apierrors.IsUnauthorized},
	} {
		client := dynamic.NewForConfigOrDie(test.config).Resource(flunders).Namespace("default")
		eventually(t, func() error { // a new right is in force a moment later
			_, err := client.List(t.Context(), metav1.ListOptions{})
			if !test.want(err) {
				return fmt.Errorf("%s: %v", test.name, err)
			}
			return nil
		})
	}
}

func isNil(err error) bool { return err == nil }

const wardleRights = `
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRole
metadata: {name: wardle-server}
rules:
- {apiGroups: [""], resources: [namespaces], verbs: [get, list, watch]}
- {apiGroups: [admissionregistration.k8s.io], resources: ["*"], verbs: [get, list, watch]}
- {apiGroups: [flowcontrol.apiserver.k8s.io], resources: ["*"], verbs: [get, list, watch]}
---
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRoleBinding
metadata: {name: wardle-server}
roleRef: {apiGroup: rbac.authorization.k8s.io, kind: ClusterRole, name: wardle-server}
subjects: [{apiGroup: rbac.authorization.k8s.io, kind: User, name: wardle-server}]
---
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRoleBinding
metadata: {name: wardle-server:system:auth-delegator}
roleRef: {apiGroup: rbac.authorization.k8s.io, kind: ClusterRole, name: "system:auth-delegator"}
subjects: [{apiGroup: rbac.authorization.k8s.io, kind: User, name: wardle-server}]
---
apiVersion: rbac.authorization.k8s.io/v1
kind: RoleBinding
metadata: {name: wardle-server-auth-reader, namespace: kube-system}
roleRef:
  apiGroup: rbac.authorization.k8s.io
  kind: Role
  name: extension-apiserver-authentication-reader
subjects: [{apiGroup: rbac.authorization.k8s.io, kind: User, name: wardle-server}]
`

const wardleRegistration = `
apiVersion: v1
kind: Namespace
metadata: {name: wardle}
---
apiVersion: v1
kind: Service
metadata: {name: api, namespace: wardle}
spec: {type: ExternalName, externalName: localhost}
---
apiVersion: apiregistration.k8s.io/v1
kind: APIService
metadata: {name: v1alpha1.wardle.example.com}
spec:
  group: wardle.example.com
  version: v1alpha1
  service: {name: api, namespace: wardle, port: %s}
  caBundle: %s
  groupPriorityMinimum: 1000
  versionPriority: 15
`
