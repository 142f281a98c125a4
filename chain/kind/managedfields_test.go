package kind

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	flowcontrolv1 "k8s.io/api/flowcontrol/v1"
	networkingv1 "k8s.io/api/networking/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	schedulingv1 "k8s.io/api/scheduling/v1"
	storagev1 "k8s.io/api/storage/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/managedfields"
	"k8s.io/client-go/applyconfigurations"
	"k8s.io/client-go/kubernetes/scheme"
	"sigs.k8s.io/structured-merge-diff/v6/fieldpath"
)

// TestOwnedFields compares ownedFields with a field manager that uses the OpenAPI definitions.
func TestOwnedFields(t *testing.T) {
	t.Parallel()
	converter := applyconfigurations.NewTypeConverter(scheme.Scheme)
	meta := metav1.ObjectMeta{
		Name:        "a",
		Namespace:   "b",
		Labels:      map[string]string{"a": "1", "b/c": ""},
		Annotations: map[string]string{"d": "2"},
	}
	for name, obj := range map[string]Object{
		"nothing":  &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "a"}},
		"metadata": &corev1.Namespace{ObjectMeta: meta},
		"a list of strings": &corev1.Namespace{ObjectMeta: meta, Spec: corev1.NamespaceSpec{
			Finalizers: []corev1.FinalizerName{corev1.FinalizerKubernetes},
		}},
		"maps": &corev1.ConfigMap{
			Data:       map[string]string{"a": "b", "c": ""},
			BinaryData: map[string][]byte{"d": {1}},
			Immutable:  new(false),
		},
		"empty maps": &corev1.ConfigMap{
			ObjectMeta: metav1.ObjectMeta{Labels: map[string]string{}},
			Data:       map[string]string{},
		},
		"a list of structs": &rbacv1.ClusterRole{
			Rules: []rbacv1.PolicyRule{{Verbs: []string{"get"}}},
			AggregationRule: &rbacv1.AggregationRule{
				ClusterRoleSelectors: []metav1.LabelSelector{{}},
			},
		},
		"an empty list": &rbacv1.Role{Rules: []rbacv1.PolicyRule{}},
		"an atomic field": &rbacv1.RoleBinding{
			Subjects: []rbacv1.Subject{{Kind: "User", Name: "u"}},
			RoleRef:  rbacv1.RoleRef{Kind: "Role", Name: "r"},
		},
		"zero values": &schedulingv1.PriorityClass{},
		"scalars": &schedulingv1.PriorityClass{
			Value:            3,
			GlobalDefault:    true,
			Description:      "d",
			PreemptionPolicy: new(corev1.PreemptNever),
		},
		"pointers to structs": &flowcontrolv1.PriorityLevelConfiguration{
			Spec: flowcontrolv1.PriorityLevelConfigurationSpec{
				Type: flowcontrolv1.PriorityLevelEnablementLimited,
				Limited: &flowcontrolv1.LimitedPriorityLevelConfiguration{
					NominalConcurrencyShares: new(int32(0)),
					LimitResponse: flowcontrolv1.LimitResponse{
						Type:    flowcontrolv1.LimitResponseTypeQueue,
						Queuing: &flowcontrolv1.QueuingConfiguration{},
					},
				},
			},
		},
		"structs in structs": &flowcontrolv1.FlowSchema{Spec: flowcontrolv1.FlowSchemaSpec{
			PriorityLevelConfiguration: flowcontrolv1.PriorityLevelConfigurationReference{Name: "p"},
			DistinguisherMethod: &flowcontrolv1.FlowDistinguisherMethod{
				Type: flowcontrolv1.FlowDistinguisherMethodByUserType,
			},
		}},
		"a selector": &networkingv1.NetworkPolicy{Spec: networkingv1.NetworkPolicySpec{
			PodSelector: metav1.LabelSelector{MatchLabels: map[string]string{"a": "b"}},
		}},
		"a class": &networkingv1.IngressClass{Spec: networkingv1.IngressClassSpec{
			Controller: "c",
			Parameters: &networkingv1.IngressClassParametersReference{Kind: "k", Name: "n"},
		}},
		"a storage type": &storagev1.StorageClass{
			Provisioner:  "p",
			Parameters:   map[string]string{"a": "b"},
			MountOptions: []string{"m"},
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			set, err := ownedFields(obj, nil)
			if err != nil {
				t.Fatal(err)
			}
			got, err := set.ToJSON()
			if err != nil {
				t.Fatal(err)
			}
			kinds, _, err := scheme.Scheme.ObjectKinds(obj)
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(string(managedBy(t, converter, obj, kinds[0])), string(got)); diff != "" {
				t.Errorf("field manager (-) and ownedFields (+):\n%s", diff)
			}
		})
	}
}

// managedBy returns what a field manager writes into a new object.
func managedBy(
	t *testing.T, converter managedfields.TypeConverter, obj Object, gvk schema.GroupVersionKind,
) []byte {
	t.Helper()
	empty, err := scheme.Scheme.New(gvk)
	if err != nil {
		t.Fatal(err)
	}
	empty.GetObjectKind().SetGroupVersionKind(gvk)
	sent := obj.DeepCopyObject().(Object)
	sent.GetObjectKind().SetGroupVersionKind(gvk)
	manager, err := managedfields.NewDefaultFieldManager(converter, scheme.Scheme, scheme.Scheme,
		scheme.Scheme, gvk, gvk.GroupVersion(), "", nil)
	if err != nil {
		t.Fatal(err)
	}
	updated, err := manager.Update(empty, sent, "m")
	if err != nil {
		t.Fatal(err)
	}
	entries := updated.(Object).GetManagedFields()
	if len(entries) == 0 {
		return []byte("{}")
	}
	return []byte(entries[0].FieldsV1.GetRawString())
}

// TestUnknownManagedFields checks that lists whose items have separate owners are refused.
func TestUnknownManagedFields(t *testing.T) {
	t.Parallel()
	for want, obj := range map[string]Object{
		"v1.PodSpec.Containers": &appsv1.Deployment{Spec: appsv1.DeploymentSpec{
			Template: corev1.PodTemplateSpec{Spec: corev1.PodSpec{Containers: []corev1.Container{{}}}},
		}},
		"v1.ObjectMeta.Finalizers": &corev1.ConfigMap{
			ObjectMeta: metav1.ObjectMeta{Finalizers: []string{"a/b"}},
		},
	} {
		if _, err := ownedFields(obj, nil); err == nil || !strings.HasPrefix(err.Error(), want+" ") {
			t.Errorf("got %v, want an error about %s", err, want)
		}
	}
}

func TestResetFieldsHaveNoOwner(t *testing.T) {
	t.Parallel()
	node := &corev1.Node{
		ObjectMeta: metav1.ObjectMeta{Labels: map[string]string{"a": "b"}},
		Spec:       corev1.NodeSpec{PodCIDR: "c"},
		Status:     corev1.NodeStatus{Phase: "p"},
	}
	got, err := ownedFieldsV1(node, fieldpath.NewSet(fieldpath.MakePathOrDie("status"),
		fieldpath.MakePathOrDie("metadata", "labels")))
	if err != nil {
		t.Fatal(err)
	}
	if want := `{"f:spec":{"f:podCIDR":{}}}`; got != want {
		t.Errorf("got %s, want %s", got, want)
	}
}
