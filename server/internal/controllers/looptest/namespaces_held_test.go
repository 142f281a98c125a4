package looptest

import (
	"context"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	apiextensionsclient "k8s.io/apiextensions-apiserver/pkg/client/clientset/clientset"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/rest"

	"github.com/kinproc/kinproc/server/internal/controllers/workloadtest"
	"github.com/kinproc/kinproc/server/servertest"
)

var namespacesWidgets = schema.GroupVersionResource{
	Group: "example.com", Version: "v1", Resource: "widgets",
}

// namespacesDefineWidgets defines a custom resource and returns when widgets can be created.
func namespacesDefineWidgets(t *testing.T, config *rest.Config) dynamic.Interface {
	t.Helper()
	definitions, err := apiextensionsclient.NewForConfig(config)
	if err != nil {
		t.Fatal(err)
	}
	_, err = definitions.ApiextensionsV1().CustomResourceDefinitions().Create(t.Context(),
		&apiextensionsv1.CustomResourceDefinition{
			ObjectMeta: metav1.ObjectMeta{Name: namespacesWidgets.GroupResource().String()},
			Spec: apiextensionsv1.CustomResourceDefinitionSpec{
				Group: namespacesWidgets.Group, Scope: apiextensionsv1.NamespaceScoped,
				Names: apiextensionsv1.CustomResourceDefinitionNames{
					Plural: namespacesWidgets.Resource, Kind: "Widget",
				},
				Versions: []apiextensionsv1.CustomResourceDefinitionVersion{{
					Name: namespacesWidgets.Version, Served: true, Storage: true,
					Schema: &apiextensionsv1.CustomResourceValidation{
						OpenAPIV3Schema: &apiextensionsv1.JSONSchemaProps{Type: "object"},
					},
				}},
			},
		}, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	client, err := dynamic.NewForConfig(config)
	if err != nil {
		t.Fatal(err)
	}
	workloadtest.Until(t, func(ctx context.Context) string {
		_, err := client.Resource(namespacesWidgets).List(ctx, metav1.ListOptions{})
		if apierrors.IsNotFound(err) {
			return err.Error()
		}
		return ""
	})
	return client
}

// TestNamespaceGoesAwayWithAll deletes a namespace whose content cannot be deleted at once: a claim
// with a finalizer that is used by a pod, a pod on a node without a kubelet, and a custom resource
// with a finalizer, which is removed last.
func TestNamespaceGoesAwayWithAll(t *testing.T) {
	t.Parallel()
	s := servertest.Run(t)
	c := namespacesCluster{t, workloadtest.Client(t, s)}
	custom := namespacesDefineWidgets(t, s.RESTConfig())
	name, ctx := c.create(&corev1.Namespace{}), t.Context()
	_, err := c.CoreV1().PersistentVolumeClaims(name).Create(ctx, &corev1.PersistentVolumeClaim{
		ObjectMeta: metav1.ObjectMeta{Name: "claim"},
		Spec: corev1.PersistentVolumeClaimSpec{
			AccessModes: []corev1.PersistentVolumeAccessMode{corev1.ReadWriteOnce},
			Resources: corev1.VolumeResourceRequirements{
				Requests: corev1.ResourceList{corev1.ResourceStorage: resource.MustParse("1Gi")},
			},
		},
	}, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	_, err = c.CoreV1().Pods(name).Create(ctx, &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Name: "pod"},
		Spec: corev1.PodSpec{
			NodeName:                      "somewhere",
			TerminationGracePeriodSeconds: new(int64(1)),
			Containers:                    []corev1.Container{{Name: "c", Image: "i"}},
			Volumes: []corev1.Volume{{Name: "v", VolumeSource: corev1.VolumeSource{
				PersistentVolumeClaim: &corev1.PersistentVolumeClaimVolumeSource{ClaimName: "claim"},
			}}},
		},
	}, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	widget := &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": namespacesWidgets.GroupVersion().String(), "kind": "Widget",
		"metadata": map[string]any{"name": "w", "finalizers": []any{"example.com/hold"}},
	}}
	if _, err := custom.Resource(namespacesWidgets).Namespace(name).Create(ctx, widget,
		metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	changes := workloadtest.Must(c.CoreV1().Pods(name).Watch(ctx, metav1.ListOptions{}))(t)
	defer changes.Stop()
	began := time.Now()
	c.remove(name)
	c.await(name,
		namespaceSays(corev1.NamespaceContentRemaining, corev1.ConditionTrue, "SomeResourcesRemain"))
	c.await(name,
		namespaceSays(corev1.NamespaceFinalizersRemaining, corev1.ConditionTrue, "SomeFinalizersRemain"))
	if took := time.Since(began); took < time.Second {
		t.Errorf("the pod was gone after %s, before its grace period of a second had ended", took)
	}
	terminating := false
	for event := range changes.ResultChan() {
		if event.Type == watch.Deleted {
			break
		}
		pod, ok := event.Object.(*corev1.Pod)
		terminating = terminating || ok && pod.DeletionTimestamp != nil
	}
	if !terminating {
		t.Error("nobody saw the pod within its grace period")
	}
	_, err = custom.Resource(namespacesWidgets).Namespace(name).Patch(ctx, "w", types.MergePatchType,
		[]byte(`{"metadata":{"finalizers":null}}`), metav1.PatchOptions{})
	if err != nil {
		t.Fatal(err)
	}
	c.await(name, namespaceIsGone)
	t.Logf("took %s", time.Since(began))
}

// BenchmarkNamespaceDeletion measures how long the deletion of a namespace takes, empty and with
// 100 objects of each of ten kinds.
func BenchmarkNamespaceDeletion(b *testing.B) {
	s := servertest.Run(b)
	c := namespacesCluster{b, workloadtest.Client(b, s)}
	client := dynamic.NewForConfigOrDie(s.RESTConfig())
	for name, objects := range map[string]int{"empty": 0, "objects=1000": 100} {
		b.Run(name, func(b *testing.B) {
			for b.Loop() {
				b.StopTimer()
				name := c.create(&corev1.Namespace{})
				for range objects {
					namespacesOfTenKinds(b, client, name)
				}
				b.StartTimer()
				c.remove(name)
				c.await(name, namespaceIsGone)
			}
		})
	}
}

// namespacesOfTenKinds creates an object of each of ten kinds in a namespace.
func namespacesOfTenKinds(b *testing.B, client dynamic.Interface, namespace string) {
	b.Helper()
	for resource, fields := range map[schema.GroupVersionResource]map[string]any{
		{Version: "v1", Resource: "configmaps"}:      {"kind": "ConfigMap"},
		{Version: "v1", Resource: "endpoints"}:       {"kind": "Endpoints"},
		{Version: "v1", Resource: "limitranges"}:     {"kind": "LimitRange"},
		{Version: "v1", Resource: "resourcequotas"}:  {"kind": "ResourceQuota"},
		{Version: "v1", Resource: "secrets"}:         {"kind": "Secret"},
		{Version: "v1", Resource: "serviceaccounts"}: {"kind": "ServiceAccount"},
		{Version: "v1", Resource: "services"}: {"kind": "Service", "spec": map[string]any{
			"ports": []any{map[string]any{"port": int64(80)}},
		}},
		{Version: "v1", Resource: "pods"}: {"kind": "Pod", "spec": map[string]any{
			"containers": []any{map[string]any{"name": "c", "image": "i"}},
		}},
		{Group: "rbac.authorization.k8s.io", Version: "v1", Resource: "roles"}: {"kind": "Role"},
		{Group: "coordination.k8s.io", Version: "v1", Resource: "leases"}:      {"kind": "Lease"},
	} {
		o := &unstructured.Unstructured{Object: fields}
		o.SetAPIVersion(resource.GroupVersion().String())
		o.SetGenerateName("some-")
		if _, err := client.Resource(resource).Namespace(namespace).Create(b.Context(), o,
			metav1.CreateOptions{}); err != nil {
			b.Fatal(err)
		}
	}
}
