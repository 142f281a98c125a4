package core_test

import (
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"reflect"
	"strings"
	"testing"

	autoscalingv1 "k8s.io/api/autoscaling/v1"
	certificatesv1 "k8s.io/api/certificates/v1"
	certificatesv1beta1 "k8s.io/api/certificates/v1beta1"
	resourcev1beta1 "k8s.io/api/resource/v1beta1"
	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/runtime/serializer"
	"k8s.io/apimachinery/pkg/runtime/serializer/cbor"
	"k8s.io/apimachinery/pkg/util/diff"
	"k8s.io/apiserver/pkg/endpoints/request"
	genericregistry "k8s.io/apiserver/pkg/registry/generic/registry"
	apistorage "k8s.io/apiserver/pkg/storage"
)

// testData returns the folder of k8s.io/api's own round-trip test data: every kind with every field
// set.
func testData(t *testing.T) string {
	t.Helper()
	dir, err := exec.CommandContext(t.Context(), "go", "list", "-m", "-f", "{{.Dir}}", "k8s.io/api").
		Output()
	if err != nil {
		t.Fatal(err)
	}
	return filepath.Join(strings.TrimSpace(string(dir)), "testdata", "HEAD")
}

func read(t *testing.T, path string) []byte {
	t.Helper()
	data, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return data
}

// TestTestDataSurvives takes every object in k8s.io/api's round-trip test data, in each of its
// encodings, to etcd and back.
func TestTestDataSurvives(t *testing.T) {
	t.Parallel()
	b := newBuiltins(t)
	dir := testData(t)
	codecs := serializer.NewCodecFactory(b.scheme, serializer.WithSerializer(cbor.NewSerializerInfo))
	tested := 0
	for gv, resources := range b.resources {
		for path, s := range resources {
			store := storeOf(s)
			if store == nil || strings.Contains(path, "/") {
				continue
			}
			gvk := gv.WithKind(b.hub(t, store.New()).Kind)
			tested++
			t.Run(gvk.Kind+"."+gv.String(), func(t *testing.T) {
				t.Parallel()
				group := gv.Group
				if group == "" {
					group = "core"
				}
				file := filepath.Join(dir, group+"."+gv.Version+"."+gvk.Kind)
				obj, _, err := codecs.UniversalDecoder().Decode(read(t, file+".json"), nil, nil)
				if err != nil {
					t.Fatal(err)
				}
				for _, extension := range []string{".yaml", ".pb"} {
					other, _, err := codecs.UniversalDecoder().Decode(read(t, file+extension), nil, nil)
					if err != nil {
						t.Fatal(err)
					}
					same(t, extension, obj, other)
				}
				survives(t, codecs, store, gv, obj)
			})
		}
	}
	if tested < 60 {
		t.Errorf("only %d kinds were tested", tested)
	}
}

// TestFilledObjectsSurvive takes random objects of every kind to etcd and back.
func TestFilledObjectsSurvive(t *testing.T) {
	t.Parallel()
	b := newBuiltins(t)
	codecs := serializer.NewCodecFactory(b.scheme, serializer.WithSerializer(cbor.NewSerializerInfo))
	for gv, resources := range b.resources {
		for path, s := range resources {
			store := storeOf(s)
			if store == nil || strings.Contains(path, "/") {
				continue
			}
			t.Run(path+"."+gv.String(), func(t *testing.T) {
				t.Parallel()
				filler := b.filler(4)
				for range 10 {
					obj := store.New()
					filler.Fill(obj)
					b.scheme.Default(obj)
					survives(t, codecs, store, gv, obj)
				}
			})
		}
	}
}

// survives encodes and decodes obj, a defaulted object, in every media type for clients of version
// gv, and stores it in etcd and reads it back.
func survives(
	t *testing.T, codecs serializer.CodecFactory, store *genericregistry.Store, gv schema.GroupVersion,
	obj runtime.Object,
) {
	t.Helper()
	first := withoutKindAndVersion(t, obj)
	obj, err := runtime.Decode(codecs.UniversalDecoder(),
		[]byte(runtime.EncodeOrDie(codecs.LegacyCodec(gv), obj.DeepCopyObject())))
	if err != nil {
		t.Fatal(err)
	}
	obj = withoutKindAndVersion(t, obj)
	// These versions cannot express everything that other versions can. What they cannot express is
	// lost in the first conversion.
	_, lossy := obj.(*certificatesv1beta1.PodCertificateRequest)
	lossy = lossy && gv == certificatesv1.SchemeGroupVersion ||
		gv == autoscalingv1.SchemeGroupVersion || gv == resourcev1beta1.SchemeGroupVersion
	if !lossy {
		same(t, "first", first, obj)
	}
	for _, info := range codecs.SupportedMediaTypes() {
		encoded, err := runtime.Encode(codecs.EncoderForVersion(info.Serializer, gv),
			obj.DeepCopyObject())
		if err != nil {
			t.Fatalf("%s: %v", info.MediaType, err)
		}
		decoded, err := runtime.Decode(
			codecs.DecoderToVersion(info.Serializer, runtime.InternalGroupVersioner), encoded)
		if err != nil {
			t.Fatalf("%s: %v", info.MediaType, err)
		}
		same(t, info.MediaType, obj, decoded)
	}

	ctx := request.WithNamespace(t.Context(), "one")
	key, err := store.KeyFunc(ctx, gv.Group+"."+gv.Version) // the versions of a kind share a store
	if err != nil {
		t.Fatal(err)
	}
	created := store.New()
	if err := store.Storage.Storage.Create(ctx, key, obj.DeepCopyObject(), created, 0); err != nil {
		t.Fatal(err)
	}
	got := store.New()
	if err := store.Storage.Storage.Get(ctx, key, apistorage.GetOptions{}, got); err != nil {
		t.Fatal(err)
	}
	same(t, "etcd", obj, withoutKindAndVersion(t, got))
	if err := store.Storage.Storage.Delete(ctx, key, store.New(), nil,
		apistorage.ValidateAllObjectFunc, nil, apistorage.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
}

// withoutKindAndVersion returns a copy of obj without the fields that etcd3 clears or sets: the
// kind and the resource version.
func withoutKindAndVersion(t *testing.T, obj runtime.Object) runtime.Object {
	t.Helper()
	obj = obj.DeepCopyObject()
	obj.GetObjectKind().SetGroupVersionKind(schema.GroupVersionKind{})
	accessor, err := meta.Accessor(obj)
	if err != nil {
		t.Fatal(err)
	}
	accessor.SetResourceVersion("")
	accessor.SetSelfLink("")
	return obj
}

// same compares two objects. Objects that differ are compared as JSON too, since a JSON value
// embedded in an object may be written in many ways.
func same(t *testing.T, how string, want, got runtime.Object) {
	t.Helper()
	want.GetObjectKind().SetGroupVersionKind(schema.GroupVersionKind{})
	got.GetObjectKind().SetGroupVersionKind(schema.GroupVersionKind{})
	if !equality.Semantic.DeepEqual(want, got) && !reflect.DeepEqual(asJSON(t, want), asJSON(t, got)) {
		t.Fatalf("%s: changed in the round trip:\n%s", how, diff.Diff(want, got))
	}
}

func asJSON(t *testing.T, obj runtime.Object) (value any) {
	t.Helper()
	data, err := json.Marshal(obj)
	if err == nil {
		err = json.Unmarshal(data, &value)
	}
	if err != nil {
		t.Fatal(err)
	}
	return value
}
