package etcdstore

import (
	"encoding/json"
	"testing"
	"time"

	"go.etcd.io/etcd/api/v3/mvccpb"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/serializer/protobuf"
	"k8s.io/client-go/kubernetes/scheme"
)

func fullObject() *corev1.Pod {
	now := metav1.NewTime(time.Unix(1e9, 0))
	return &corev1.Pod{
		TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "Pod"},
		ObjectMeta: metav1.ObjectMeta{
			Name: "name", Namespace: "namespace", UID: "uid", GenerateName: "na", Generation: 3,
			CreationTimestamp: now, DeletionTimestamp: &now, DeletionGracePeriodSeconds: new(int64(3)),
			Labels:      map[string]string{"uid": "wrong", "a": `"},{"`},
			Annotations: map[string]string{"metadata": `{"metadata":{"uid":"\\"`},
			OwnerReferences: []metav1.OwnerReference{
				{APIVersion: "v1", Kind: "Node", Name: "one", UID: "1", Controller: new(true)},
				{APIVersion: "g/v1", Kind: "K", Name: "two", UID: "2", BlockOwnerDeletion: new(false)},
			},
			Finalizers: []string{"a", "b"},
			ManagedFields: []metav1.ManagedFieldsEntry{
				{Manager: "uid", FieldsV1: &metav1.FieldsV1{Raw: []byte(`{"f:uid":{}}`)}},
			},
		},
		Spec: corev1.PodSpec{NodeName: "uid", Containers: []corev1.Container{{Name: "metadata"}}},
	}
}

func TestReadMetadata(t *testing.T) {
	t.Parallel()
	c := newConfigMaps(t)
	bare := &corev1.Pod{
		TypeMeta:   metav1.TypeMeta{APIVersion: "v1", Kind: "Pod"},
		ObjectMeta: metav1.ObjectMeta{Name: "bare", UID: "u"},
	}
	for _, o := range []*corev1.Pod{fullObject(), bare} {
		encoded, err := json.Marshal(o)
		if err != nil {
			t.Fatal(err)
		}
		proto, err := runtime.Encode(protobuf.NewSerializer(scheme.Scheme, scheme.Scheme), o)
		if err != nil {
			t.Fatal(err)
		}
		for format, data := range map[string][]byte{"JSON": encoded, "protobuf": proto} {
			var got metav1.PartialObjectMetadata
			kv := &mvccpb.KeyValue{Key: []byte("/registry/pods/x"), Value: data, ModRevision: 7}
			if _, err := c.backend.readMetadata(t.Context(), kv, &got); err != nil {
				t.Errorf("%s of %s: %v", format, o.Name, err)
			}
			want := metav1.PartialObjectMetadata{TypeMeta: o.TypeMeta, ObjectMeta: *o.ObjectMeta.DeepCopy()}
			want.ResourceVersion = "7"
			if !equality.Semantic.DeepEqual(got, want) {
				t.Errorf("%s of %s: got %+v, want %+v", format, o.Name, got, want)
			}
		}
	}
}

func BenchmarkReadMetadata(b *testing.B) {
	encoded, err := json.Marshal(fullObject())
	if err != nil {
		b.Fatal(err)
	}
	proto, err := runtime.Encode(protobuf.NewSerializer(scheme.Scheme, scheme.Scheme), fullObject())
	if err != nil {
		b.Fatal(err)
	}
	for format, data := range map[string][]byte{"JSON": encoded, "protobuf": proto} {
		b.Run(format, func(b *testing.B) {
			backend := &Backend{}
			for b.Loop() {
				var got metav1.PartialObjectMetadata
				kv := &mvccpb.KeyValue{Value: data}
				if _, err := backend.readMetadata(b.Context(), kv, &got); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}
