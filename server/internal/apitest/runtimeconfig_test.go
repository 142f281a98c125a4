package apitest

import (
	"slices"
	"strings"
	"testing"

	lifecyclev1alpha1 "k8s.io/api/lifecycle/v1alpha1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/uuid"
	"k8s.io/client-go/discovery"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/kubernetes"

	"github.com/kinproc/kinproc/server"
	"github.com/kinproc/kinproc/server/servertest"
)

// runtimeConfigOff lists the group versions that are served only if --runtime-config enables them.
var runtimeConfigOff = []string{
	"admissionregistration.k8s.io/v1alpha1", "admissionregistration.k8s.io/v1beta1",
	"certificates.k8s.io/v1beta1",
	"coordination.k8s.io/v1alpha2", "coordination.k8s.io/v1beta1",
	"internal.apiserver.k8s.io/v1alpha1",
	"lifecycle.k8s.io/v1alpha1",
	"resource.k8s.io/v1alpha3", "resource.k8s.io/v1beta1", "resource.k8s.io/v1beta2",
	"scheduling.k8s.io/v1alpha3", "scheduling.k8s.io/v1beta1",
	"storagemigration.k8s.io/v1beta1",
}

func TestRuntimeConfigSwitchesVersionsOn(t *testing.T) {
	t.Parallel()
	for _, on := range []bool{false, true} {
		s := servertest.Run(t, servertest.WithoutControllers, func(o *server.Options) {
			if on {
				o.RuntimeConfig = map[string]string{"api/all": "true"}
			}
		})
		client, err := discovery.NewDiscoveryClientForConfig(s.RESTConfig())
		if err != nil {
			t.Fatal(err)
		}
		_, lists, err := client.ServerGroupsAndResources()
		if err != nil {
			t.Fatal(err)
		}
		var served []string
		for _, list := range lists {
			served = append(served, list.GroupVersion)
		}
		for _, gv := range runtimeConfigOff {
			if slices.Contains(served, gv) != on {
				t.Errorf("api/all enabled: %t, %s served: %t", on, gv, !on)
			}
		}
		if on {
			runtimeConfigLists(t, s, lists)
			runtimeConfigWritesOld(t, s)
		}
	}
}

// TestRuntimeConfigSwitches checks which group versions --runtime-config adds to and removes from
// the defaults.
func TestRuntimeConfigSwitches(t *testing.T) {
	t.Parallel()
	list := func(suffix string) []string {
		return slices.DeleteFunc(slices.Clone(runtimeConfigOff), func(gv string) bool {
			return !strings.Contains(gv, suffix)
		})
	}
	without := func(gvs []string, gv string) []string {
		return slices.DeleteFunc(slices.Clone(gvs), func(g string) bool { return g == gv })
	}
	byDefault := runtimeConfigServes(t, nil)
	for name, c := range map[string]struct {
		switches map[string]string
		on, off  []string
	}{
		"beta":  {map[string]string{"api/beta": "true"}, list("beta"), nil},
		"alpha": {map[string]string{"api/alpha": "true"}, list("alpha"), nil},
		"all but one": {
			map[string]string{"api/all": "true", "lifecycle.k8s.io/v1alpha1": "false"},
			without(runtimeConfigOff, "lifecycle.k8s.io/v1alpha1"), nil,
		},
		"all but alpha": {
			map[string]string{"api/all": "true", "api/alpha": "false"}, list("beta"), nil,
		},
		"one": {
			map[string]string{"scheduling.k8s.io/v1beta1": ""}, []string{"scheduling.k8s.io/v1beta1"}, nil,
		},
		"a resource": {
			map[string]string{"scheduling.k8s.io/v1beta1/workloads": "true"},
			[]string{"scheduling.k8s.io/v1beta1"}, nil,
		},
		"a version off": {map[string]string{"storagemigration.k8s.io/v1": "false"}, nil, []string{
			"storagemigration.k8s.io/v1",
		}},
		"the core version on": {map[string]string{"api/v1": "true", "api/v1/pods": ""}, nil, nil},
		"only resource off": {
			map[string]string{"policy/v1/poddisruptionbudgets": "false"}, nil, []string{"policy/v1"},
		},
		"unknown resource":     {map[string]string{"policy/v1/nothing": "true"}, nil, nil},
		"version that is gone": {map[string]string{"policy/v1beta1": "true"}, nil, nil},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			want := slices.Concat(byDefault, c.on)
			want = slices.DeleteFunc(want, func(gv string) bool { return slices.Contains(c.off, gv) })
			slices.Sort(want)
			if got := runtimeConfigServes(t, c.switches); !slices.Equal(got, want) {
				t.Errorf("got  %q\nwant %q", got, want)
			}
		})
	}
}

// runtimeConfigServes returns the sorted group versions of a server.
func runtimeConfigServes(t *testing.T, switches map[string]string) []string {
	t.Helper()
	s := servertest.Run(t, servertest.WithoutControllers, func(o *server.Options) {
		o.RuntimeConfig = switches
	})
	client, err := discovery.NewDiscoveryClientForConfig(s.RESTConfig())
	if err != nil {
		t.Fatal(err)
	}
	groups, err := client.ServerGroups()
	if err != nil {
		t.Fatal(err)
	}
	gvs := metav1.ExtractGroupVersions(groups)
	slices.Sort(gvs)
	return gvs
}

// TestRuntimeConfigSwitchesOneResource enables one resource of a version without the others.
func TestRuntimeConfigSwitchesOneResource(t *testing.T) {
	t.Parallel()
	s := servertest.Run(t, servertest.WithoutControllers, func(o *server.Options) {
		o.RuntimeConfig = map[string]string{
			"scheduling.k8s.io/v1beta1/podgroups": "true",
			"apps/v1/replicasets":                 "false",
		}
	})
	client, err := discovery.NewDiscoveryClientForConfig(s.RESTConfig())
	if err != nil {
		t.Fatal(err)
	}
	for gv, want := range map[string][]string{
		"scheduling.k8s.io/v1beta1": {"podgroups", "podgroups/status"},
		"scheduling.k8s.io/v1":      {"priorityclasses"},
		"apps/v1": {
			"controllerrevisions", "daemonsets", "daemonsets/status", "deployments", "deployments/scale",
			"deployments/status", "statefulsets", "statefulsets/scale", "statefulsets/status",
		},
	} {
		list, err := client.ServerResourcesForGroupVersion(gv)
		if err != nil {
			t.Errorf("%s: %v", gv, err)
			continue
		}
		var got []string
		for _, r := range list.APIResources {
			got = append(got, r.Name)
		}
		slices.Sort(got)
		if !slices.Equal(got, want) {
			t.Errorf("%s serves %q, want %q", gv, got, want)
		}
	}
}

// TestRuntimeConfigOfGroup checks a group whose versions are all disabled by default, with and
// without enabling it.
func TestRuntimeConfigOfGroup(t *testing.T) {
	t.Parallel()
	for _, on := range []bool{false, true} {
		s := servertest.Run(t, servertest.WithoutControllers, func(o *server.Options) {
			if on {
				o.RuntimeConfig = map[string]string{"lifecycle.k8s.io/v1alpha1": "true"}
			}
		})
		client, err := kubernetes.NewForConfig(s.RESTConfig())
		if err != nil {
			t.Fatal(err)
		}
		groups, err := client.Discovery().ServerGroups()
		if err != nil {
			t.Fatal(err)
		}
		listed := false
		for _, g := range groups.Groups {
			listed = listed || g.Name == lifecyclev1alpha1.GroupName
		}
		_, err = client.LifecycleV1alpha1().EvictionRequests("default").Create(t.Context(),
			&lifecyclev1alpha1.EvictionRequest{
				ObjectMeta: metav1.ObjectMeta{Name: "r"},
				Spec: lifecyclev1alpha1.EvictionRequestSpec{
					Target: lifecyclev1alpha1.EvictionRequestTarget{
						Pod: &lifecyclev1alpha1.EvictionRequestPodReference{Name: "p", UID: uuid.NewUUID()},
					},
					Requester: "example.com/test",
					Intent:    lifecyclev1alpha1.EvictionRequestIntentEviction,
				},
			}, metav1.CreateOptions{})
		if on && err != nil || !on && !apierrors.IsNotFound(err) || listed != on {
			t.Errorf("enabled: %t, listed: %t, create: %v", on, listed, err)
		}
	}
}

func TestRuntimeConfigRefusesWhatNeverWas(t *testing.T) {
	t.Parallel()
	for key, refused := range map[string]bool{
		"apps/v1": false, "policy/v1beta1": false, "/v1": false, "v1": false,
		"api/v1": false, "api/v1/pods": false, "api/ga": false, "apiregistration.k8s.io/v1": false,
		"batch/v1/nothing": false,
		"nope/v1":          true, "apps/v7": true, "apps": true, "api/gamma": true,
		"apiregistration.k8s.io/v7": true, "batch/v1/jobs/status": true,
	} {
		o := server.Options{RuntimeConfig: map[string]string{key: "true"}}
		errs := o.Validate()
		if slices.ContainsFunc(errs, func(err error) bool {
			return strings.Contains(err.Error(), "Options.RuntimeConfig")
		}) != refused {
			t.Errorf("%s: %v", key, errs)
		}
	}
	for _, key := range []string{"v1", "api/v1", "api/v1/pods"} {
		o := server.Options{RuntimeConfig: map[string]string{key: "false"}}
		if errs := o.Validate(); len(errs) != 1 ||
			!strings.Contains(errs[0].Error(), "cannot be switched off") {
			t.Errorf("%s=false: %v", key, errs)
		}
	}
}

func runtimeConfigLists(t *testing.T, s *server.Server, lists []*metav1.APIResourceList) {
	t.Helper()
	client, err := dynamic.NewForConfig(s.RESTConfig())
	if err != nil {
		t.Fatal(err)
	}
	for _, list := range lists {
		gv, err := schema.ParseGroupVersion(list.GroupVersion)
		if err != nil {
			t.Fatal(err)
		}
		for _, r := range list.APIResources {
			if strings.Contains(r.Name, "/") || !slices.Contains(r.Verbs, "list") {
				continue
			}
			if _, err := client.Resource(gv.WithResource(r.Name)).List(t.Context(),
				metav1.ListOptions{}); err != nil {
				t.Errorf("list %s of %s: %v", r.Name, gv, err)
			}
		}
	}
}

// runtimeConfigWritesOld applies objects in old versions and reads them in new ones, with the
// defaults of the new version.
func runtimeConfigWritesOld(t *testing.T, s *server.Server) {
	t.Helper()
	client, err := dynamic.NewForConfig(s.RESTConfig())
	if err != nil {
		t.Fatal(err)
	}
	device := map[string]any{"name": "d", "deviceClassName": "gpu.example.com"}
	for _, c := range []struct {
		group, resource, kind, namespace, from, to string
		spec                                       map[string]any
		path                                       []string
		want                                       any
	}{
		{"resource.k8s.io", "resourceclaims", "ResourceClaim", "default", "v1beta1", "v1",
			map[string]any{"devices": map[string]any{"requests": []any{device}}},
			[]string{"exactly", "allocationMode"}, "ExactCount"},
		{"resource.k8s.io", "resourceclaims", "ResourceClaim", "default", "v1beta2", "v1beta1",
			map[string]any{"devices": map[string]any{"requests": []any{map[string]any{
				"name":    "d",
				"exactly": map[string]any{"deviceClassName": "gpu.example.com"},
			}}}},
			[]string{"allocationMode"}, "ExactCount"},
		{"coordination.k8s.io", "leasecandidates", "LeaseCandidate", "default", "v1alpha2", "v1beta1",
			map[string]any{
				"leaseName":        "l",
				"binaryVersion":    "1.2.3",
				"emulationVersion": "1.2.3",
				"strategy":         "OldestEmulationVersion",
			},
			[]string{"leaseName"}, "l"},
		{"scheduling.k8s.io", "podgroups", "PodGroup", "default", "v1alpha3", "v1beta1",
			map[string]any{"schedulingPolicy": map[string]any{"gang": map[string]any{"minCount": int64(3)}}},
			[]string{"schedulingPolicy", "gang", "minCount"}, int64(3)},
		{
			"storagemigration.k8s.io", "storageversionmigrations", "StorageVersionMigration", "", "v1beta1",
			"v1", map[string]any{"resource": map[string]any{"resource": "secrets"}},
			[]string{"resource", "resource"}, "secrets",
		},
	} {
		gv := schema.GroupVersion{Group: c.group, Version: c.from}
		obj := &unstructured.Unstructured{Object: map[string]any{
			"apiVersion": gv.String(),
			"kind":       c.kind,
			"metadata":   map[string]any{"name": "from-" + c.from},
			"spec":       c.spec,
		}}
		options := metav1.ApplyOptions{FieldManager: "test"}
		if _, err := client.Resource(gv.WithResource(c.resource)).Namespace(c.namespace).
			Apply(t.Context(), obj.GetName(), obj, options); err != nil {
			t.Errorf("%s %s: %v", gv, c.kind, err)
			continue
		}
		gv.Version = c.to
		got, err := client.Resource(gv.WithResource(c.resource)).Namespace(c.namespace).Get(t.Context(),
			obj.GetName(), metav1.GetOptions{})
		if err != nil {
			t.Errorf("%s %s: %v", gv, c.kind, err)
			continue
		}
		in := got.Object["spec"].(map[string]any)
		if requests, ok, _ := unstructured.NestedSlice(in, "devices", "requests"); ok {
			in = requests[0].(map[string]any)
		}
		if value, _, _ := unstructured.NestedFieldNoCopy(in, c.path...); value != c.want ||
			got.GetAPIVersion() != gv.String() {
			t.Errorf("%s: want %v at %v, got %v", gv, c.want, c.path, got.Object)
		}
	}
}
