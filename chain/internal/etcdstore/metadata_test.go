package etcdstore

import (
	"encoding/json"
	"reflect"
	"testing"
	"time"

	"go.etcd.io/etcd/api/v3/mvccpb"
	corev1 "k8s.io/api/core/v1"
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

// wanted returns what is decoded of an object.
func wanted(o *corev1.Pod) *metav1.PartialObjectMetadata {
	return &metav1.PartialObjectMetadata{
		TypeMeta: o.TypeMeta,
		ObjectMeta: metav1.ObjectMeta{
			Name: o.Name, Namespace: o.Namespace, UID: o.UID, DeletionTimestamp: o.DeletionTimestamp,
			OwnerReferences: o.OwnerReferences, Finalizers: o.Finalizers, ResourceVersion: "7",
		},
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
		indented, err := json.MarshalIndent(map[string]any{
			"data": []any{`}"`, map[string]any{"metadata": 1}, nil, 1.5e3, true}, "metadata": o.ObjectMeta,
			"kind": o.Kind, "apiVersion": o.APIVersion,
		}, " ", "\t")
		if err != nil {
			t.Fatal(err)
		}
		proto, err := runtime.Encode(protobuf.NewSerializer(scheme.Scheme, scheme.Scheme), o)
		if err != nil {
			t.Fatal(err)
		}
		for format, data := range map[string][]byte{
			"JSON":     encoded,
			"indented": indented,
			"protobuf": proto,
		} {
			var got metav1.PartialObjectMetadata
			kv := &mvccpb.KeyValue{Key: []byte("/registry/pods/x"), Value: data, ModRevision: 7}
			if _, err := c.backend.readMetadata(t.Context(), kv, &got); err != nil {
				t.Errorf("%s of %s: %v", format, o.Name, err)
			}
			if want := wanted(o); got.DeletionTimestamp.Equal(want.DeletionTimestamp) {
				got.DeletionTimestamp = want.DeletionTimestamp // in another location
			}
			if want := wanted(o); !reflect.DeepEqual(&got, want) {
				t.Errorf("%s of %s: got %+v, want %+v", format, o.Name, got, want)
			}
		}
	}
}

// FuzzReadMetadata looks for panics, and for JSON that encoding/json reads in another way.
func FuzzReadMetadata(f *testing.F) {
	encoded, err := json.Marshal(fullObject())
	if err != nil {
		f.Fatal(err)
	}
	f.Add(encoded)
	proto, err := runtime.Encode(protobuf.NewSerializer(scheme.Scheme, scheme.Scheme), fullObject())
	if err != nil {
		f.Fatal(err)
	}
	f.Add(proto[len(protobufMagic):])
	f.Fuzz(func(t *testing.T, data []byte) {
		var ignored, got, want metav1.PartialObjectMetadata
		_ = metadataOfProtobuf(data, &ignored)
		err := metadataOfJSON(data, &got)
		var fields map[string]json.RawMessage
		if json.Unmarshal(data, &fields) != nil || len(fields["metadata"]) == 0 ||
			json.Unmarshal(data, &want) != nil {
			return
		}
		if err == nil && got.UID != want.UID && json.Valid(data) && !repeated(data) {
			t.Errorf("UID %q, want %q", got.UID, want.UID)
		}
	})
}

// repeated reports whether a member of an object or of its metadata may occur twice, or be spelled
// with other letters or escapes, which the server never writes.
func repeated(data []byte) bool {
	var all map[string]json.RawMessage
	count := 0
	_ = members(data, func(string, []byte) (bool, error) { count++; return true, nil })
	if json.Unmarshal(data, &all) != nil || len(all) != count {
		return true
	}
	for name := range all {
		if name != "apiVersion" && name != "kind" && name != "metadata" && name != "spec" {
			return true
		}
	}
	count = 0
	_ = members(all["metadata"], func(string, []byte) (bool, error) { count++; return true, nil })
	var metadata map[string]json.RawMessage
	if json.Unmarshal(all["metadata"], &metadata) != nil || len(metadata) != count {
		return true
	}
	_, exact := metadata["uid"]
	return !exact
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
