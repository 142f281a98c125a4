package etcdstore

import (
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/serializer/protobuf"
	apiregistrationv1 "k8s.io/kube-aggregator/pkg/apis/apiregistration/v1"
	aggregatorscheme "k8s.io/kube-aggregator/pkg/apiserver/scheme"
)

// TestJSONCodec checks that what is in etcd decodes as with the legacy codec, whoever wrote it.
func TestJSONCodec(t *testing.T) {
	t.Parallel()
	v1 := apiregistrationv1.SchemeGroupVersion
	legacy := aggregatorscheme.Codecs.LegacyCodec(v1)
	codec := JSONCodec(aggregatorscheme.Scheme, aggregatorscheme.Codecs, v1)

	service := &apiregistrationv1.APIService{
		ObjectMeta: metav1.ObjectMeta{
			Name:        "v1.example.com",
			Annotations: map[string]string{"kind": `"kind":"Other","apiVersion":"v2"`},
		},
		Spec: apiregistrationv1.APIServiceSpec{Group: "example.com", Version: "v1"},
	}
	stored, err := runtime.Encode(codec, service)
	if err != nil {
		t.Fatal(err)
	}
	if want := runtime.EncodeOrDie(legacy, service); string(stored) != want {
		t.Errorf("encoded: %s\nwant: %s", stored, want)
	}
	asProtobuf, err := runtime.Encode(protobuf.NewSerializer(aggregatorscheme.Scheme,
		aggregatorscheme.Scheme), withKind(service))
	if err != nil {
		t.Fatal(err)
	}
	const head = `{"kind":"APIService","apiVersion":"apiregistration.k8s.io/v1",`
	body, ok := strings.CutPrefix(string(stored), head)
	if !ok {
		t.Fatalf("stored: %s", stored)
	}
	for name, data := range map[string]string{
		"as stored":     string(stored),
		"other order":   `{"apiVersion":"apiregistration.k8s.io/v1","kind":"APIService",` + body,
		"kind last":     strings.TrimSuffix(strings.TrimSpace(`{`+body), "}") + `,` + head[1:len(head)-1] + "}",
		"spaces":        "{\n \"kind\" : \"APIService\" ,\t\"apiVersion\": \"apiregistration.k8s.io/v1\" , " + body,
		"escapes":       `{"kind":"\u0041PIService","apiVersion":"apiregistration.k8s.io\/v1",` + body,
		"upper case":    `{"Kind":"APIService","ApiVersion":"apiregistration.k8s.io/v1",` + body,
		"protobuf":      string(asProtobuf),
		"YAML":          "kind: APIService\napiVersion: apiregistration.k8s.io/v1\nmetadata: {name: a}\n",
		"without kind":  `{` + body,
		"unknown kind":  `{"kind":"Other","apiVersion":"apiregistration.k8s.io/v1",` + body,
		"other group":   `{"kind":"APIService","apiVersion":"example.com/v1",` + body,
		"other type":    `{"kind":1,"apiVersion":"apiregistration.k8s.io/v1",` + body,
		"other version": `{"kind":"APIService","apiVersion":"a/b/c",` + body,
		"cut off":       string(stored[:len(stored)/2]),
		"head only":     head,
		"array":         `["kind"]`,
		"empty":         "",
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			want, wantErr := runtime.Decode(legacy, []byte(data))
			got, err := runtime.Decode(codec, []byte(data))
			if (err == nil) != (wantErr == nil) {
				t.Fatalf("error %v, want %v", err, wantErr)
			}
			if !equality.Semantic.DeepEqual(got, want) {
				t.Errorf("decoded: %v\nwant: %v", got, want)
			}
		})
	}
}

func withKind(service *apiregistrationv1.APIService) *apiregistrationv1.APIService {
	service = service.DeepCopy()
	service.SetGroupVersionKind(apiregistrationv1.SchemeGroupVersion.WithKind("APIService"))
	return service
}
