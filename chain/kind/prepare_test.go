package kind_test

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/serializer"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/kinproc/kinproc/chain/kind"
)

func TestPrepare(t *testing.T) {
	t.Parallel()
	group := groupOf(&node{
		Plural:        "nodes",
		ClusterScoped: true,
		Default:       func(n *corev1.Node) { n.Labels = map[string]string{"default": "yes"} },
		PrepareCreate: func(_ context.Context, n *corev1.Node) { n.Spec.ProviderID = "prepared" },
		Canonicalize:  func(n *corev1.Node) { n.Spec.PodCIDR += "/24" },
		Validate: func(_ context.Context, n *corev1.Node) field.ErrorList {
			if n.Spec.PodCIDR == "" {
				return field.ErrorList{field.Required(field.NewPath("spec", "podCIDR"), "")}
			}
			return nil
		},
		Status:     &kind.Status[*corev1.Node]{},
		Generation: true,
		Refuse: func(_ context.Context, n *corev1.Node) error {
			if n.Spec.PodCIDR == "refused" {
				return errors.New("refused")
			}
			return nil
		},
		Quirks: kind.Quirks{StoragePath: "minions"},
	}, &configMap{Plural: "configmaps"})
	scheme, err := kind.NewScheme(group)
	if err != nil {
		t.Fatal(err)
	}
	codec := serializer.NewCodecFactory(scheme).LegacyCodec(corev1.SchemeGroupVersion)
	p := kind.NewPreparer(scheme, group)
	newNode := func(cidr string) *corev1.Node {
		return &corev1.Node{
			ObjectMeta: metav1.ObjectMeta{Name: "a"},
			Spec:       corev1.NodeSpec{PodCIDR: cidr},
			Status:     corev1.NodeStatus{Phase: "sent"},
		}
	}

	prepared := newNode("10.0.0.0")
	if err := p.Prepare(t.Context(), prepared, "me"); err != nil {
		t.Fatal(err)
	}
	key, value, err := p.Encode(prepared, nowhere{codec})
	if err != nil {
		t.Fatal(err)
	}
	if want := "/registry/minions/a"; key != want {
		t.Errorf("the key is %s, want %s", key, want)
	}
	got := &corev1.Node{}
	if err := runtime.DecodeInto(codec, value, got); err != nil {
		t.Fatal(err)
	}
	if got.UID == "" || got.CreationTimestamp.IsZero() || got.Generation != 1 ||
		got.Status.Phase != "" {
		t.Errorf("the system's fields are %+v, the status is %+v", got.ObjectMeta, got.Status)
	}
	if got.Labels["default"] == "" || got.Spec.ProviderID != "prepared" ||
		got.Spec.PodCIDR != "10.0.0.0/24" {
		t.Errorf("the kind's functions set labels %v and spec %+v", got.Labels, got.Spec)
	}
	const owned = `{"f:metadata":{"f:labels":{".":{},"f:default":{}}},"f:spec":{"f:podCIDR":{}}}`
	if m := got.ManagedFields; len(m) != 1 || m[0].Manager != "me" || m[0].APIVersion != "v1" ||
		m[0].FieldsV1.GetRawString() != owned {
		t.Errorf("the managed fields are %v", m)
	}

	key, _, err = p.Encode(
		&corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: "a", Namespace: "b"}}, nowhere{codec})
	if want := "/registry/configmaps/b/a"; err != nil || key != want {
		t.Errorf("got %s, %v, want %s", key, err, want)
	}

	if err := p.Prepare(t.Context(), newNode(""), "me"); !apierrors.IsInvalid(errors.Unwrap(err)) {
		t.Errorf("an invalid object: got %v", err)
	}
	for want, obj := range map[string]kind.Object{
		`prepare nodes "a": refused`: newNode("refused"),
		`prepare configmaps "a": `: &corev1.ConfigMap{
			ObjectMeta: metav1.ObjectMeta{Name: "a"},
		},
		`prepare "a": no kind is declared for *v1.Secret`: &corev1.Secret{
			ObjectMeta: metav1.ObjectMeta{Name: "a"},
		},
		`prepare configmaps "b": v1.ObjectMeta.Finalizers is a list that is`: &corev1.ConfigMap{
			ObjectMeta: metav1.ObjectMeta{Name: "b", Finalizers: []string{"a/b"}},
		},
	} {
		if err := p.Prepare(t.Context(), obj, "me"); err == nil ||
			!strings.HasPrefix(err.Error(), want) {
			t.Errorf("got %v, want %s", err, want)
		}
	}
}

func TestRenew(t *testing.T) {
	t.Parallel()
	group := groupOf(&configMap{Plural: "configmaps"})
	scheme, err := kind.NewScheme(group)
	if err != nil {
		t.Fatal(err)
	}
	first := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: "a", Namespace: "b"}}
	if err := kind.NewPreparer(scheme, group).Prepare(t.Context(), first, "me"); err != nil {
		t.Fatal(err)
	}
	before := metav1.NewTime(time.Unix(1, 0))
	first.CreationTimestamp, first.ManagedFields[0].Time = before, &before
	second := first.DeepCopy()
	kind.Renew(second)
	if second.UID == first.UID || !second.CreationTimestamp.After(before.Time) ||
		!second.ManagedFields[0].Time.Equal(&second.CreationTimestamp) {
		t.Errorf("the new object has %+v", second.ObjectMeta)
	}
	if !first.ManagedFields[0].Time.Equal(&before) {
		t.Error("the first object has changed")
	}
}
