package server_test

import (
	"context"
	"encoding/json"
	"fmt"
	"runtime"
	"runtime/metrics"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apiextensions-apiserver/pkg/apihelpers"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	apiextensionsclient "k8s.io/apiextensions-apiserver/pkg/client/clientset/clientset"
	apiextensionsclientv1 "k8s.io/apiextensions-apiserver/pkg/client/clientset/clientset/typed/apiextensions/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/kubernetes"

	"github.com/kinproc/kinproc/server/servertest"
)

// The definitions of a cluster with many platforms: as many as 20 projects have, of the same size
// on average.
const (
	platformDefinitions = 214
	platformBytes       = 72 << 10
)

// platformDefinition returns a definition of size bytes as JSON, or somewhat more. Its schema has
// nested objects and lists with descriptions, as generated schemas do.
func platformDefinition(tb testing.TB, i, size int) []byte {
	tb.Helper()
	object := func(depth int) apiextensionsv1.JSONSchemaProps {
		return apiextensionsv1.JSONSchemaProps{Type: "object", Description: strings.Repeat(
			fmt.Sprintf("Level %d selects what the controller observes. ", depth), 3)}
	}
	plural, group := fmt.Sprintf("platforms%d", i), fmt.Sprintf("group%d.load.example.com", i%20)
	schema := &apiextensionsv1.JSONSchemaProps{
		Type: "object", Properties: map[string]apiextensionsv1.JSONSchemaProps{},
	}
	definition := &apiextensionsv1.CustomResourceDefinition{
		TypeMeta: metav1.TypeMeta{
			APIVersion: apiextensionsv1.SchemeGroupVersion.String(), Kind: "CustomResourceDefinition",
		},
		ObjectMeta: metav1.ObjectMeta{Name: plural + "." + group},
		Spec: apiextensionsv1.CustomResourceDefinitionSpec{
			Group: group,
			Scope: apiextensionsv1.NamespaceScoped,
			Names: apiextensionsv1.CustomResourceDefinitionNames{Plural: plural, Kind: "K" + plural},
			Versions: []apiextensionsv1.CustomResourceDefinitionVersion{{
				Name: "v1", Served: true, Storage: true,
				Schema: &apiextensionsv1.CustomResourceValidation{OpenAPIV3Schema: schema},
				Subresources: &apiextensionsv1.CustomResourceSubresources{
					Status: &apiextensionsv1.CustomResourceSubresourceStatus{},
				},
			}},
		},
	}
	spec := object(0)
	spec.Properties = map[string]apiextensionsv1.JSONSchemaProps{}
	for n := 0; ; n++ {
		leaf := object(3)
		leaf.Properties = map[string]apiextensionsv1.JSONSchemaProps{}
		for _, name := range []string{"name", "namespace", "key", "operator", "path"} {
			field := object(4)
			field.Type, field.Pattern = "string", "^[a-z0-9]([-a-z0-9]*[a-z0-9])?$"
			leaf.Properties[name] = field
		}
		leaf.Required = []string{"name"}
		list := object(2)
		list.Type = "array"
		list.Items = &apiextensionsv1.JSONSchemaPropsOrArray{Schema: &leaf}
		outer := object(1)
		outer.Properties = map[string]apiextensionsv1.JSONSchemaProps{"items": list, "default": leaf}
		spec.Properties[fmt.Sprintf("part%d", n)] = outer
		schema.Properties["spec"] = spec
		encoded, err := json.Marshal(definition)
		if err != nil {
			tb.Fatal(err)
		}
		if len(encoded) >= size {
			return encoded
		}
	}
}

// cpu returns the CPU time that the process has used so far, as of the last garbage collection.
func cpu() time.Duration {
	runtime.GC()
	samples := []metrics.Sample{
		{Name: "/cpu/classes/total:cpu-seconds"}, {Name: "/cpu/classes/idle:cpu-seconds"},
	}
	metrics.Read(samples)
	return time.Duration((samples[0].Value.Float64() - samples[1].Value.Float64()) *
		float64(time.Second))
}

// liveHeap returns the size of the objects that are in use.
func liveHeap() uint64 {
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return m.HeapAlloc
}

// BenchmarkDefinitions measures how long it takes to apply the definitions of a large cluster until
// all of them are established, and what they leave in memory. The CPU time and the memory are those
// of client and server.
func BenchmarkDefinitions(b *testing.B) {
	var definitions [][]byte
	for i := range platformDefinitions {
		// sizes vary by a factor of 10, like those of real definitions
		definitions = append(definitions, platformDefinition(b, i,
			platformBytes/5*(1+i%10)*10/11))
	}
	var took, used []time.Duration
	var live []float64
	for b.Loop() {
		b.StopTimer()
		s := servertest.Run(b)
		config := s.RESTConfig()
		config.QPS = -1
		client := apiextensionsclient.NewForConfigOrDie(config).ApiextensionsV1().
			CustomResourceDefinitions()
		before, heap := cpu(), liveHeap()
		began := time.Now()
		b.StartTimer()
		var last string
		for _, d := range definitions {
			var named metav1.PartialObjectMetadata
			if err := json.Unmarshal(d, &named); err != nil {
				b.Fatal(err)
			}
			last = named.Name
			if _, err := client.Patch(b.Context(), last, types.ApplyPatchType, d,
				metav1.PatchOptions{FieldManager: "bench"}); err != nil {
				b.Fatal(err)
			}
		}
		// they are established in the order of their creation
		if err := wait.PollUntilContextCancel(b.Context(), 10*time.Millisecond, true,
			func(context.Context) (bool, error) { return isEstablished(b, client, last), nil }); err != nil {
			b.Fatal(err)
		}
		b.StopTimer()
		took = append(took, time.Since(began))
		used = append(used, cpu()-before)
		live = append(live, float64(liveHeap()-heap)/(1<<20))
		if err := s.Stop(b.Context()); err != nil {
			b.Fatal(err)
		}
		b.StartTimer()
	}
	reportMedian(b, "established-ms", took)
	reportMedian(b, "cpu-ms", used)
	b.ReportMetric(live[len(live)/2], "live-MiB")
}

func isEstablished(
	b *testing.B, client apiextensionsclientv1.CustomResourceDefinitionInterface, name string,
) bool {
	b.Helper()
	definition, err := client.Get(b.Context(), name, metav1.GetOptions{})
	if err != nil {
		b.Fatal(err)
	}
	return apihelpers.IsCRDConditionTrue(definition, apiextensionsv1.Established)
}

// BenchmarkList measures lists of 2,500 objects of a kind that nobody watches.
func BenchmarkList(b *testing.B) {
	s := servertest.Run(b)
	config := s.RESTConfig()
	config.QPS = -1
	client := kubernetes.NewForConfigOrDie(config).CoreV1().ConfigMaps(metav1.NamespaceDefault)
	for i := range 2500 {
		if _, err := client.Create(b.Context(), &corev1.ConfigMap{
			ObjectMeta: metav1.ObjectMeta{Name: fmt.Sprintf("c-%d", i)},
			Data:       map[string]string{"k": strings.Repeat("x", 200)},
		}, metav1.CreateOptions{}); err != nil {
			b.Fatal(err)
		}
	}
	var took []time.Duration
	for b.Loop() {
		began := time.Now()
		list, err := client.List(b.Context(), metav1.ListOptions{})
		if err != nil || len(list.Items) < 2500 {
			b.Fatal(len(list.Items), err)
		}
		took = append(took, time.Since(began))
	}
	reportMedian(b, "list-ms", took)
}

// BenchmarkManyObjects measures lists of many objects of a kind that is watched: of a page of 500,
// of all objects in such pages, and of the hundredth part that a label selects.
func BenchmarkManyObjects(b *testing.B) {
	for _, n := range []int{4000, 32_000} {
		b.Run(fmt.Sprintf("objects=%d", n), func(b *testing.B) { benchmarkManyObjects(b, n) })
	}
}

func benchmarkManyObjects(b *testing.B, n int) {
	s := servertest.Run(b)
	config := s.RESTConfig()
	config.QPS = -1
	client := kubernetes.NewForConfigOrDie(config).CoreV1().ConfigMaps(metav1.NamespaceDefault)
	w, err := client.Watch(b.Context(), metav1.ListOptions{FieldSelector: "metadata.name=c-0"})
	if err != nil {
		b.Fatal(err)
	}
	defer w.Stop()
	var next atomic.Int64
	var creating sync.WaitGroup
	for range 16 {
		creating.Go(func() {
			for i := next.Add(1); i <= int64(n); i = next.Add(1) {
				if _, err := client.Create(b.Context(), &corev1.ConfigMap{
					ObjectMeta: metav1.ObjectMeta{
						Name: fmt.Sprintf("c-%d", i), Labels: map[string]string{"m": fmt.Sprint(i % 100)},
					},
					Data: map[string]string{"k": strings.Repeat("x", 1024)},
				}, metav1.CreateOptions{}); err != nil {
					b.Error(err)
					return
				}
			}
		})
	}
	creating.Wait()
	list := func(options metav1.ListOptions) *corev1.ConfigMapList {
		list, err := client.List(b.Context(), options)
		if err != nil {
			b.Fatal(err)
		}
		return list
	}
	var first, all, selected []time.Duration
	for b.Loop() {
		began := time.Now()
		page := list(metav1.ListOptions{Limit: 500})
		first = append(first, time.Since(began))
		for page.Continue != "" {
			page = list(metav1.ListOptions{Limit: 500, Continue: page.Continue})
		}
		all = append(all, time.Since(began))
		began = time.Now()
		if got := list(metav1.ListOptions{LabelSelector: "m=7"}); len(got.Items) != n/100 {
			b.Fatal(len(got.Items))
		}
		selected = append(selected, time.Since(began))
	}
	reportMedian(b, "page-ms", first)
	reportMedian(b, "all-ms", all)
	reportMedian(b, "label-ms", selected)
}
