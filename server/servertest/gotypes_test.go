package servertest_test

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	apiextensionsclient "k8s.io/apiextensions-apiserver/pkg/client/clientset/clientset"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"github.com/kinproc/kinproc/server/servertest"
)

var fleetVersion = schema.GroupVersion{Group: "gotypes.example.com", Version: "v1"}

// Fleet has fields of all types that API types have.
type Fleet struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`

	Spec   FleetSpec   `json:"spec"`
	Status FleetStatus `json:"status,omitempty"`
}

// DeepCopyObject is not called.
func (f *Fleet) DeepCopyObject() runtime.Object { return f }

type FleetSpec struct {
	Common `json:",inline"`
	*Extra `json:",inline"`

	Name     string                         `json:"name"`
	Count    int32                          `json:"count"`
	Big      *int64                         `json:"big,omitempty"`
	Plain    int                            `json:"plain,omitempty"`
	Small    uint8                          `json:"small,omitempty"`
	Wide     uint32                         `json:"wide,omitempty"`
	Ratio    float64                        `json:"ratio,omitempty"`
	Quoted   int64                          `json:"quoted,string,omitempty"`
	Enabled  *bool                          `json:"enabled,omitempty"`
	Nil      *string                        `json:"nil"`
	Phase    Phase                          `json:"phase,omitempty"`
	Data     []byte                         `json:"data,omitempty"`
	Names    []string                       `json:"names"`
	Matrix   [][]int64                      `json:"matrix,omitempty"`
	Labels   map[string]string              `json:"labels,omitempty"`
	Phases   map[Phase][]Phase              `json:"phases,omitempty"`
	Blobs    map[string][]byte              `json:"blobs,omitempty"`
	Nested   map[string]map[string]*Boat    `json:"nested,omitempty"`
	At       *metav1.Time                   `json:"at,omitempty"`
	Exactly  metav1.MicroTime               `json:"exactly,omitempty"`
	Never    metav1.Time                    `json:"never,omitempty"`
	Every    metav1.Duration                `json:"every,omitempty"`
	Port     intstr.IntOrString             `json:"port,omitempty"`
	Ports    []intstr.IntOrString           `json:"ports,omitempty"`
	Size     resource.Quantity              `json:"size,omitempty"`
	Sizes    corev1.ResourceList            `json:"sizes,omitempty"`
	Raw      *runtime.RawExtension          `json:"raw,omitempty"`
	Any      any                            `json:"any,omitempty"`
	JSON     *apiextensionsv1.JSON          `json:"json,omitempty"`
	Tree     *Boat                          `json:"tree,omitempty"`
	Address  textual                        `json:"address,omitempty"`
	Pair     [2]string                      `json:"pair,omitempty"`
	Zero     Boat                           `json:"zero,omitzero"`
	Template corev1.PodTemplateSpec         `json:"template"`
	Claims   []corev1.PersistentVolumeClaim `json:"claims,omitempty"`
	Selector *metav1.LabelSelector          `json:"selector,omitempty"`
	Untagged string
	Ignored  string `json:"-"`
}

type Phase string

type Common struct {
	Shared string `json:"shared"`
	Name   int    `json:"name"` // hidden by that of FleetSpec
}

type Extra struct {
	Bonus string `json:"bonus"`
}

// Boat contains boats.
type Boat struct {
	Name   string          `json:"name,omitempty"`
	Towed  []Boat          `json:"towed,omitempty"`
	Beside map[string]Boat `json:"beside,omitempty"`
}

type textual struct{ text string }

func (t textual) MarshalText() ([]byte, error)     { return []byte(t.text), nil }
func (t *textual) UnmarshalText(text []byte) error { t.text = string(text); return nil }

type FleetStatus struct {
	Conditions []metav1.Condition `json:"conditions,omitempty"`
}

func fleet() *Fleet {
	at := time.Date(2026, 11, 22, 10, 20, 30, 123456000, time.UTC)
	boat := Boat{Name: "a", Towed: []Boat{{Name: "b", Towed: []Boat{{Name: "c"}}}},
		Beside: map[string]Boat{"d": {Name: "e"}}}
	pod := metav1.ObjectMeta{
		Name: "p", Labels: map[string]string{"l": "1"}, Annotations: map[string]string{"a": "2"},
	}
	return &Fleet{
		TypeMeta:   metav1.TypeMeta{APIVersion: fleetVersion.String(), Kind: "Fleet"},
		ObjectMeta: metav1.ObjectMeta{Name: "f"},
		Spec: FleetSpec{
			Common: Common{Shared: "s"}, Extra: &Extra{Bonus: "x"},
			Name: "n", Count: -3, Big: new(int64(1 << 62)), Plain: 1 << 40, Small: 255,
			Wide: 1<<32 - 1, Ratio: 0.5, Quoted: 1 << 60, Enabled: new(false), Phase: "Ready",
			Data: []byte{0, 255}, Names: []string{}, Matrix: [][]int64{{1, 2}, {}},
			Labels: map[string]string{"a.b/c": ""}, Phases: map[Phase][]Phase{"A": {"B"}},
			Blobs:  map[string][]byte{"k": []byte("v")},
			Nested: map[string]map[string]*Boat{"x": {"y": &boat}},
			At:     new(metav1.NewTime(at.Truncate(time.Second))), Exactly: metav1.NewMicroTime(at),
			Every: metav1.Duration{Duration: 90 * time.Second},
			Port:  intstr.FromString("http"), Ports: []intstr.IntOrString{intstr.FromInt32(80)},
			Size:  resource.MustParse("1.5Gi"),
			Sizes: corev1.ResourceList{"cpu": resource.MustParse("100m")},
			Raw:   &runtime.RawExtension{Raw: []byte(`{"a":[1,"x",{"b":null}]}`)},
			Any:   map[string]any{"a": []any{"b", 0.5, true}},
			JSON:  &apiextensionsv1.JSON{Raw: []byte(`["a",1]`)},
			Tree:  &boat, Zero: boat, Address: textual{"here"}, Pair: [2]string{"l", "r"},
			Template: corev1.PodTemplateSpec{ObjectMeta: pod, Spec: corev1.PodSpec{
				Containers: []corev1.Container{{
					Name: "c", Image: "i", Ports: []corev1.ContainerPort{{ContainerPort: 80}},
					Resources: corev1.ResourceRequirements{Limits: corev1.ResourceList{
						"memory": resource.MustParse("1Gi"),
					}},
					ReadinessProbe: &corev1.Probe{ProbeHandler: corev1.ProbeHandler{
						HTTPGet: &corev1.HTTPGetAction{Port: intstr.FromInt32(80)},
					}},
				}},
				Volumes: []corev1.Volume{{Name: "v", VolumeSource: corev1.VolumeSource{
					ConfigMap: &corev1.ConfigMapVolumeSource{
						LocalObjectReference: corev1.LocalObjectReference{Name: "m"},
					},
				}}},
			}},
			Claims: []corev1.PersistentVolumeClaim{{
				TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "PersistentVolumeClaim"}, ObjectMeta: pod,
				Spec: corev1.PersistentVolumeClaimSpec{AccessModes: []corev1.PersistentVolumeAccessMode{
					corev1.ReadWriteOnce}},
			}},
			Selector: &metav1.LabelSelector{MatchExpressions: []metav1.LabelSelectorRequirement{
				{Key: "k", Operator: metav1.LabelSelectorOpExists}}},
			Untagged: "u",
		},
		Status: FleetStatus{Conditions: []metav1.Condition{{
			Type: "Ready", Status: metav1.ConditionTrue, Reason: "R", ObservedGeneration: 1,
			LastTransitionTime: metav1.NewTime(at.Truncate(time.Second)),
		}}},
	}
}

// What a client wrote from a Go type is read back unchanged, and values of other types are refused.
func TestGoTypes(t *testing.T) {
	t.Parallel()
	c, namespace := servertest.Shared(t)
	servertest.CRDs(t, c, servertest.GoTypes(
		servertest.GoType{GroupVersion: fleetVersion, Object: &Fleet{}}))
	client := kubernetes.NewForConfigOrDie(c.RESTConfig()).Discovery().RESTClient()
	path := "/apis/" + fleetVersion.String() + "/namespaces/" + namespace + "/fleets"

	want := fleet()
	data, err := json.Marshal(want)
	if err != nil {
		t.Fatal(err)
	}
	strict := func(r *rest.Request) ([]byte, error) {
		return r.Param("fieldValidation", "Strict").DoRaw(t.Context())
	}
	if _, err := strict(client.Post().AbsPath(path).Body(data)); err != nil {
		t.Fatal(err)
	}
	patch := func(subresource, body string) ([]byte, error) {
		return strict(client.Patch(types.MergePatchType).AbsPath(path + "/f" + subresource).
			Body([]byte(body)))
	}
	status, err := json.Marshal(map[string]any{"status": want.Status})
	if err != nil {
		t.Fatal(err)
	}
	stored, err := patch("/status", string(status))
	if err != nil {
		t.Fatal(err)
	}
	var got Fleet
	if err := json.Unmarshal(stored, &got); err != nil {
		t.Fatal(err)
	}
	// In JSON, times and quantities that mean the same are the same.
	got.TypeMeta, got.ObjectMeta = want.TypeMeta, want.ObjectMeta
	if again, err := json.Marshal(got); err != nil || string(again) != string(data) {
		t.Errorf("%v, got\n%s\nwant\n%s", err, again, data)
	}

	for _, wrong := range []string{
		`{"name": 1}`, `{"count": "3"}`, `{"count": 4294967296}`, `{"count": 1.5}`, `{"big": "1"}`,
		`{"small": true}`, `{"ratio": "0.5"}`, `{"quoted": 1}`, `{"enabled": "true"}`, `{"phase": 1}`,
		`{"data": "*"}`, `{"names": "a"}`, `{"names": [1]}`, `{"matrix": [1]}`, `{"labels": {"a": 1}}`,
		`{"phases": {"A": "B"}}`, `{"blobs": {"k": {}}}`, `{"nested": {"x": {"y": "z"}}}`,
		`{"at": "yesterday"}`, `{"exactly": 1}`, `{"every": 90}`, `{"port": {}}`, `{"port": 1.5}`,
		`{"size": "big"}`, `{"sizes": {"cpu": []}}`, `{"raw": "a"}`, `{"tree": "oak"}`,
		`{"tree": {"towed": {}}}`, `{"tree": {"towed": ["a"]}}`, `{"address": {}}`, `{"pair": "lr"}`,
		`{"template": {"spec": {"containers": [{"image": "i"}]}}}`, `{"shared": 1}`, `{"bonus": 1}`,
		`{"template": {"metadata": {"labels": {"l": 1}}}}`, `{"Untagged": 1}`,
		// A field is required unless its tag says otherwise.
		`{"name": null}`, `{"count": null}`, `{"names": null}`, `{"shared": null}`, `{"template": null}`,
		// There are no other fields.
		`{"unknown": 1}`, `{"private": "p"}`, `{"Ignored": "i"}`, `{"Common": {}}`,
		`{"template": {"spec": {"unknown": 1}}}`,
	} {
		_, err := patch("", `{"spec": `+wrong+`}`)
		if !apierrors.IsInvalid(err) && !apierrors.IsBadRequest(err) {
			t.Errorf("%s: %v", wrong, err)
		}
	}
	for _, right := range []string{
		`{"big": null}`, `{"nil": null}`, `{"nil": "a"}`, `{"bonus": null}`, `{"zero": null}`,
		`{"raw": {"unknown": {"a": 1}}}`, `{"any": "a"}`, `{"any": [1]}`,
		`{"tree": {"towed": [{"unknown": 1}]}}`, `{"port": 80}`, `{"size": 1}`, `{"size": "-.5e3"}`,
	} {
		if _, err := patch("", `{"spec": `+right+`}`); err != nil {
			t.Errorf("%s: %v", right, err)
		}
	}
}

// Crew is another version of a kind, in no namespace.
type Crew struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`

	Size int32 `json:"size,omitempty"`
}

func (c *Crew) DeepCopyObject() runtime.Object { return c }

func TestGoTypesVersions(t *testing.T) {
	t.Parallel()
	c, _ := servertest.Shared(t)
	version := func(name string) schema.GroupVersion {
		return schema.GroupVersion{Group: "versions.gotypes.example.com", Version: name}
	}
	servertest.CRDs(t, c, servertest.GoTypes(
		servertest.GoType{GroupVersion: version("v1"), Object: &Crew{}, ClusterScoped: true,
			Plural: "seafolk"},
		servertest.GoType{GroupVersion: version("v2"), Object: &Crew{}, ClusterScoped: true,
			Plural: "seafolk", Stored: true},
		servertest.GoType{GroupVersion: version("v1"), Object: &Fleet{}},
		servertest.GoType{GroupVersion: version("v2"), Object: &Fleet{}},
	))
	definitions := apiextensionsclient.NewForConfigOrDie(c.RESTConfig()).ApiextensionsV1().
		CustomResourceDefinitions()
	for _, want := range []struct {
		name, stored string
		scope        apiextensionsv1.ResourceScope
		status       bool
	}{
		{"seafolk.versions.gotypes.example.com", "v2", apiextensionsv1.ClusterScoped, false},
		{"fleets.versions.gotypes.example.com", "v1", apiextensionsv1.NamespaceScoped, true},
	} {
		d, err := definitions.Get(t.Context(), want.name, metav1.GetOptions{})
		if err != nil {
			t.Error(err)
			continue
		}
		if len(d.Spec.Versions) != 2 || d.Spec.Scope != want.scope ||
			d.Spec.Names.ListKind != d.Spec.Names.Kind+"List" {
			t.Errorf("%s: %v", want.name, d.Spec)
		}
		for _, v := range d.Spec.Versions {
			status := v.Subresources != nil && v.Subresources.Status != nil
			if !v.Served || v.Storage != (v.Name == want.stored) || status != want.status {
				t.Errorf("%s: version %v", want.name, v)
			}
		}
	}
	if t.Failed() {
		return
	}
	client := kubernetes.NewForConfigOrDie(c.RESTConfig()).Discovery().RESTClient()
	crews := "/apis/" + version("").Group + "/%s/seafolk"
	_, err := client.Post().AbsPath(fmt.Sprintf(crews, "v2")).Body([]byte(
		`{"apiVersion": "` + version("v2").String() +
			`", "kind": "Crew", "metadata": {"name": "c"}, "size": 3}`)).
		DoRaw(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	// The control plane is shared with the other runs of -count, and a crew has no namespace.
	t.Cleanup(func() {
		path := fmt.Sprintf(crews, "v2")
		if err := client.Delete().AbsPath(path, "c").Do(context.Background()).Error(); err != nil {
			t.Error(err)
		}
	})
	got, err := client.Get().AbsPath(fmt.Sprintf(crews, "v1"), "c").DoRaw(t.Context())
	if err != nil || !strings.Contains(string(got), `"size":3`) {
		t.Errorf("in the other version: %s, %v", got, err)
	}
}

type (
	// unnamed is no Kubernetes object.
	unnamed struct{ *Fleet }
	// typeless has no apiVersion and no kind.
	typeless struct {
		metav1.ObjectMeta `json:"metadata"`
	}
	// anonymous has no metadata.
	anonymous struct {
		metav1.TypeMeta `json:",inline"`
	}
	// eventful has a field that JSON cannot have.
	eventful struct {
		metav1.TypeMeta   `json:",inline"`
		metav1.ObjectMeta `json:"metadata"`
		Spec              struct {
			Events []chan int `json:"events"`
		} `json:"spec"`
	}
	// keyed has a map whose keys are no strings.
	keyed struct {
		metav1.TypeMeta   `json:",inline"`
		metav1.ObjectMeta `json:"metadata"`
		Spec              map[int]string `json:"spec"`
	}
)

func (unnamed) DeepCopyObject() runtime.Object     { return nil }
func (*typeless) DeepCopyObject() runtime.Object   { return nil }
func (*anonymous) DeepCopyObject() runtime.Object  { return nil }
func (*eventful) DeepCopyObject() runtime.Object   { return nil }
func (*keyed) DeepCopyObject() runtime.Object      { return nil }
func (*typeless) GetObjectKind() schema.ObjectKind { return nil }

func TestGoTypesRefuses(t *testing.T) {
	t.Parallel()
	c, _ := servertest.Shared(t)
	typed := func(o runtime.Object) servertest.GoType {
		return servertest.GoType{GroupVersion: fleetVersion, Object: o}
	}
	stored, elsewhere, clustered := typed(&Fleet{}), typed(&Fleet{}), typed(&Fleet{})
	stored.Stored, clustered.ClusterScoped, elsewhere.Plural = true, true, "fleet"
	other := stored
	other.GroupVersion.Version = "v2"
	elsewhere.GroupVersion.Version = "v2"
	clustered.GroupVersion.Version = "v2"
	for _, test := range []struct {
		types []servertest.GoType
		want  string
	}{
		{nil, "no CustomResourceDefinition"},
		{[]servertest.GoType{{Object: &Fleet{}}}, "no group or no version"},
		{[]servertest.GoType{{GroupVersion: schema.GroupVersion{Version: "v1"}, Object: &Fleet{}}},
			"no group or no version"},
		{[]servertest.GoType{typed(nil)}, "not a pointer to a struct"},
		{[]servertest.GoType{typed(unnamed{})}, "not a pointer to a struct"},
		{[]servertest.GoType{typed(&typeless{})}, "does not embed metav1.TypeMeta"},
		{[]servertest.GoType{typed(&anonymous{})}, "does not embed metav1.ObjectMeta"},
		{[]servertest.GoType{typed(&eventful{})}, "field Events of struct"},
		{[]servertest.GoType{typed(&eventful{})}, "chan int cannot be written as JSON"},
		{[]servertest.GoType{typed(&keyed{})}, "the keys of map[int]string are not strings"},
		{[]servertest.GoType{typed(&Fleet{}), typed(&Fleet{})}, "another type for v1"},
		{[]servertest.GoType{stored, other}, "more than one version is stored: v1, v2"},
		{[]servertest.GoType{stored, elsewhere}, "another version fleets.gotypes.example.com"},
		{[]servertest.GoType{stored, clustered}, "its scope is Cluster"},
	} {
		run(func(t *fake) {
			servertest.CRDs(t, c, servertest.GoTypes(test.types...))
		}).wantFailure(t, test.want)
	}
}
