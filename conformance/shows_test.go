package conformance_test

import (
	"encoding/json"
	"os"
	"slices"
	"strings"
	"testing"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/client-go/kubernetes"

	"github.com/kinproc/kinproc/conformance/internal/exchanges"
	"github.com/kinproc/kinproc/server/servertest"
)

// TestKubectlShowsEveryKind gets, describes and explains one object of every kind.
func TestKubectlShowsEveryKind(t *testing.T) {
	t.Parallel()
	s := servertest.Run(t, servertest.WithoutControllers, withoutServiceAccounts)
	resources := createAll(t, s)
	run := kubectlFor(t, s)
	for _, obj := range objects(t) {
		r := resources[obj.GroupVersionKind()]
		name := r.Name + "." + r.Version + "." + r.Group
		args := []string{name, obj.GetName()}
		if obj.GetNamespace() != "" {
			args = append(args, "--namespace", obj.GetNamespace())
		}
		out, err := run(append([]string{"describe"}, args...)...)
		if err != nil {
			t.Error(err)
		} else if !strings.Contains(out, obj.GetName()) {
			t.Errorf("describe %s prints %q", name, out)
		}
		for _, output := range []string{"", "wide"} {
			out, err := run(append([]string{"get", "--output", output}, args...)...)
			if err != nil {
				t.Error(err)
			} else if lines := strings.Split(strings.TrimSpace(out), "\n"); len(lines) != 2 ||
				!strings.Contains(lines[1], printedName(obj, output)) {
				t.Errorf("get %s --output=%s prints %q", name, output, out)
			}
		}
	}
	for gvk, r := range resources {
		out, err := run("explain", r.Name, "--api-version", gvk.GroupVersion().String(), "--recursive")
		if err != nil {
			t.Error(err)
		} else if !strings.Contains(out, gvk.Kind) || !strings.Contains(out, "metadata") {
			t.Errorf("explain %s prints %q", r.Name, out)
		}
	}
}

// printedName returns the name of obj in the output of kubectl get.
func printedName(obj *unstructured.Unstructured, output string) string {
	if obj.GetKind() == "Event" && output == "" {
		return "service/web"
	}
	return obj.GetName()
}

// TestAPIResourcesAreThoseOfKubeAPIServer compares the lines of kubectl api-resources with the
// recorded discovery.
func TestAPIResourcesAreThoseOfKubeAPIServer(t *testing.T) {
	t.Parallel()
	recordings, err := exchanges.Load(os.DirFS("testdata"))
	if err != nil {
		t.Fatal(err)
	}
	var want []string
	versions := map[string]bool{}
	for _, r := range recordings {
		if r.Name != "00-discovery" {
			continue
		}
		for _, c := range r.Cases {
			for _, step := range c.Steps {
				var list metav1.APIResourceList
				body, err := json.Marshal(step.Response.Body)
				if err != nil {
					t.Fatal(err)
				}
				if json.Unmarshal(body, &list) == nil && list.Kind == "APIResourceList" {
					want = append(want, lines(&list)...)
					versions[list.GroupVersion] = true
				}
			}
		}
	}
	out, err := kubectlFor(t, servertest.Run(t, servertest.WithoutControllers))("api-resources",
		"--no-headers", "--output", "wide")
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	for line := range strings.Lines(out) {
		got = append(got, strings.Join(strings.Fields(line), " "))
	}
	slices.Sort(want)
	if want = slices.Compact(want); len(want) < 54 {
		t.Fatalf("found only %d recorded resources", len(want))
	}
	for _, line := range want {
		if !slices.Contains(got, line) {
			t.Errorf("missing: %s", line)
		}
	}
	for _, line := range got {
		recorded := slices.ContainsFunc(strings.Fields(line), func(word string) bool {
			return versions[word]
		})
		// new in 1.37
		if recorded && !slices.Contains(want, line) && !strings.HasPrefix(line, "devicetaintrules ") {
			t.Errorf("unexpected: %s", line)
		}
	}
}

// lines returns the lines that kubectl api-resources prints for a list of resources.
func lines(list *metav1.APIResourceList) []string {
	var found []string
	for _, r := range list.APIResources {
		if strings.Contains(r.Name, "/") {
			continue
		}
		namespaced := "false"
		if r.Namespaced {
			namespaced = "true"
		}
		slices.Sort(r.Verbs)
		cells := []string{r.Name, strings.Join(r.ShortNames, ","), list.GroupVersion, namespaced, r.Kind,
			strings.Join(r.Verbs, ","), strings.Join(r.Categories, ",")}
		found = append(found, strings.Join(strings.Fields(strings.Join(cells, " ")), " "))
	}
	return found
}

// TestTablesOfSubresources requests subresources as tables: kube-apiserver renders most status
// subresources as a table, but not the others.
func TestTablesOfSubresources(t *testing.T) {
	t.Parallel()
	s := servertest.Run(t, servertest.WithoutControllers, withoutServiceAccounts)
	client, err := kubernetes.NewForConfig(s.RESTConfig())
	if err != nil {
		t.Fatal(err)
	}
	resources := createAll(t, s)
	want := map[string]bool{
		"pods/status":                         true,
		"pods/resize":                         false,
		"pods/ephemeralcontainers":            false,
		"deployments/status":                  true,
		"certificatesigningrequests/approval": false,
		"resourceclaims/status":               false,
	}
	for _, obj := range objects(t) {
		gvk := obj.GroupVersionKind()
		for subresource, table := range want {
			resource, sub, _ := strings.Cut(subresource, "/")
			if resource != resources[gvk].Name || gvk.Version != "v1" {
				continue
			}
			delete(want, subresource)
			path := []string{
				"apis", gvk.Group, "v1", "namespaces", obj.GetNamespace(), resource, obj.GetName(), sub,
			}
			if gvk.Group == "" {
				path = slices.Replace(path, 0, 2, "api")
			}
			if obj.GetNamespace() == "" {
				path = slices.DeleteFunc(path, func(part string) bool {
					return part == "" || part == "namespaces"
				})
			}
			err := client.RESTClient().Get().AbsPath(path...).
				SetHeader("Accept", "application/json;as=Table;v=v1;g=meta.k8s.io").Do(t.Context()).Error()
			if table != (err == nil) || !table && !apierrors.IsNotAcceptable(err) {
				t.Errorf("%s: %v, want a table: %t", subresource, err, table)
			}
		}
	}
	if len(want) > 0 {
		t.Errorf("no objects have the subresources %v", want)
	}
}
