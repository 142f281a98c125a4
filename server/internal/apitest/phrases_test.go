package apitest

import (
	"net/http"
	"strings"
	"testing"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/yaml"

	"github.com/kinproc/kinproc/server/servertest"
)

// The requests of phrases are sent in order to one control plane.
const (
	inDefault = "/api/v1/namespaces/default/"
	inApps    = "/apis/apps/v1/namespaces/default/"
	inRBAC    = "/apis/rbac.authorization.k8s.io/v1/"
)

// A phrase is part of a message of kube-apiserver that clients, the e2e specs or the tests of
// kubectl compare messages with. A request without one succeeds.
type phrase struct {
	post, patch string // the path
	body        string // YAML, and a merge patch if it is not a post
	phrase      string
}

var phrases = []phrase{
	// services
	{post: inDefault + "services", body: `
metadata: {name: a}
spec: {type: NodePort, clusterIP: 10.0.0.5, ports: [{port: 80, nodePort: 30080}]}`},
	{inDefault + "services", "", `
metadata: {name: b}
spec: {type: NodePort, ports: [{port: 80, nodePort: 30080}]}`,
		"provided port is already allocated"},
	{inDefault + "services", "", `
metadata: {name: b}
spec: {type: NodePort, ports: [{port: 80, nodePort: 80}]}`,
		"provided port is not in the valid range. The range of valid ports is 30000-32767"},
	{inDefault + "services", "", `
metadata: {name: b}
spec: {clusterIP: 10.0.0.5, ports: [{port: 80}]}`, "provided IP is already allocated"},
	{"", inDefault + "services/a", `spec: {clusterIP: 10.0.0.6, clusterIPs: [10.0.0.6]}`,
		"may not change once set"},
	// config maps and secrets
	{post: inDefault + "configmaps", body: `
metadata: {name: c}
immutable: true
data: {k: v}`},
	{"", inDefault + "configmaps/c", `data: {k: w}`, "field is immutable when `immutable` is set"},
	{inDefault + "configmaps", "", `metadata: {name: c}`, `configmaps "c" already exists`},
	{"", inDefault + "configmaps/c", `metadata: {resourceVersion: "1", labels: {a: b}}`,
		"the object has been modified; please apply your changes to the latest version and try again"},
	{"", inDefault + "configmaps/d", `data: {k: w}`, `configmaps "d" not found`},
	{"/api/v1/namespaces/nowhere/configmaps", "", `metadata: {name: c}`,
		`namespaces "nowhere" not found`},
	// pods
	{post: inDefault + "pods", body: `
metadata: {name: p, labels: {app: p}}
spec: {containers: [{name: c, image: i}]}`},
	{"", inDefault + "pods/p", `spec: {hostname: h}`,
		"spec: Forbidden: pod updates may not change fields other than"},
	{"", inDefault + "pods/p", `spec: {containers: [{name: c, image: i}, {name: d, image: i}]}`,
		"pod updates may not add or remove containers"},
	{inDefault + "pods", "", `
metadata: {name: q}
spec: {priorityClassName: nope, containers: [{name: c, image: i}]}`,
		"no PriorityClass with name nope was found"},
	{inDefault + "pods", "", `
metadata: {name: q}
spec: {runtimeClassName: nope, containers: [{name: c, image: i}]}`,
		`pod rejected: RuntimeClass "nope" not found`},
	{post: "/apis/policy/v1/namespaces/default/poddisruptionbudgets", body: `
metadata: {name: b}
spec: {minAvailable: 1, selector: {matchLabels: {app: p}}}`},
	// workloads
	{inApps + "deployments", "", `
metadata: {name: d}
spec:
  selector: {matchLabels: {app: d}}
  template: {metadata: {labels: {app: e}}, spec: {containers: [{name: c, image: i}]}}`,
		"`selector` does not match template `labels`"},
	{post: inApps + "deployments", body: `
metadata: {name: d}
spec:
  selector: {matchLabels: {app: d}}
  template: {metadata: {labels: {app: d}}, spec: {containers: [{name: c, image: i}]}}`},
	{"", inApps + "deployments/d", `
spec:
  selector: {matchLabels: {app: e}}
  template: {metadata: {labels: {app: e}}}`, "field is immutable"},
	{post: inApps + "statefulsets", body: `
metadata: {name: s}
spec:
  selector: {matchLabels: {app: s}}
  template: {metadata: {labels: {app: s}}, spec: {containers: [{name: c, image: i}]}}`},
	{"", inApps + "statefulsets/s", `spec: {serviceName: other}`,
		"spec.serviceName: Invalid value: \"other\": field is immutable"},
	{post: "/apis/batch/v1/namespaces/default/jobs", body: `
metadata: {name: j}
spec: {template: {spec: {restartPolicy: Never, containers: [{name: c, image: i}]}}}`},
	{"", "/apis/batch/v1/namespaces/default/jobs/j",
		`spec: {template: {metadata: {labels: {a: b}}}}`, "spec.template: Invalid value"},
	{"", "/apis/batch/v1/namespaces/default/jobs/j",
		`spec: {template: {metadata: {labels: {a: b}}}}`, "field is immutable"},
	// volumes
	{post: inDefault + "persistentvolumeclaims", body: `
metadata: {name: v}
spec: {accessModes: [ReadWriteOnce], resources: {requests: {storage: 1Gi}}}`},
	{"", inDefault + "persistentvolumeclaims/v", `spec: {accessModes: [ReadOnlyMany]}`,
		"spec is immutable after creation except resources.requests and volumeAttributesClassName for " +
			"bound claims"},
	{post: "/apis/storage.k8s.io/v1/volumeattributesclasses", body: `
metadata: {name: s}
driverName: example.com
parameters: {a: b}`},
	{"", "/apis/storage.k8s.io/v1/volumeattributesclasses/s", `parameters: {a: c}`,
		"updates to parameters are forbidden."},
	// roles
	{post: inRBAC + "clusterrolebindings", body: `
metadata: {name: r}
roleRef: {apiGroup: rbac.authorization.k8s.io, kind: ClusterRole, name: view}`},
	{"", inRBAC + "clusterrolebindings/r", `roleRef: {name: edit}`,
		`roleRef: Invalid value: {"APIGroup":"rbac.authorization.k8s.io","Kind":"ClusterRole",` +
			`"Name":"edit"}: field is immutable`},
	// quotas
	{post: inDefault + "resourcequotas", body: `
metadata: {name: q}
spec: {hard: {count/secrets: "0"}}
`},
	{inDefault + "secrets", "", `metadata: {name: s}`,
		"exceeded quota: q, requested: count/secrets=1, used: count/secrets=0, limited: count/secrets=0"},
	{"", inDefault + "resourcequotas/q", `spec: {scopes: [Terminating]}`, "field is immutable"},
	// requests in general
	{inDefault + "configmaps?fieldValidation=Strict", "", `
metadata: {name: x}
nope: 1`, `strict decoding error: unknown field "nope"`},
	{"/apis/apps/v1/namespaces/default/nopes", "", `metadata: {name: x}`,
		"the server could not find the requested resource"},
}

func TestPhrases(t *testing.T) {
	t.Parallel()
	c := servertest.Run(t)
	config := rest.CopyConfig(c.RESTConfig())
	client := kubernetes.NewForConfigOrDie(config).RESTClient()
	for _, p := range phrases {
		body, err := yaml.YAMLToJSON([]byte(p.body))
		if err != nil {
			t.Fatal(err)
		}
		request, path, query := client.Post(), p.post, ""
		request.SetHeader("Content-Type", runtime.ContentTypeJSON)
		if path == "" {
			request, path = client.Patch(types.MergePatchType), p.patch
		}
		path, query, _ = strings.Cut(path, "?")
		if name, value, ok := strings.Cut(query, "="); ok {
			request.Param(name, value)
		}
		err = request.AbsPath(path).Body(body).Do(t.Context()).Error()
		switch {
		case p.phrase == "" && err != nil:
			t.Errorf("%s%s: %v", p.post, p.patch, err)
		case p.phrase != "" && (err == nil || !strings.Contains(err.Error(), p.phrase)):
			t.Errorf("%s%s: %v\nhas no %q", p.post, p.patch, err, p.phrase)
		}
		if err != nil && apierrors.ReasonForError(err) == "" {
			t.Errorf("%s%s: %v is not an answer of the API", p.post, p.patch, err)
		}
	}

	// a user without rights
	config.Impersonate.UserName = "jane"
	jane := kubernetes.NewForConfigOrDie(config).RESTClient()
	for path, want := range map[string]string{
		inDefault + "pods": `User "jane" cannot list resource "pods" in API group "" in the namespace ` +
			`"default"`,
		"/api/v1/nodes": `User "jane" cannot list resource "nodes" in API group "" at the cluster scope`,
	} {
		code := 0
		err := jane.Get().AbsPath(path).Do(t.Context()).StatusCode(&code).Error()
		if code != http.StatusForbidden || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %d %v", path, code, err)
		}
	}
}
