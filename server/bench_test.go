package server_test

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	apiextensionsclient "k8s.io/apiextensions-apiserver/pkg/client/clientset/clientset"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"github.com/kinproc/kinproc/server"
	"github.com/kinproc/kinproc/server/servertest"
)

// reportMedian reports the median of durations in milliseconds.
func reportMedian(b *testing.B, unit string, took []time.Duration) {
	b.Helper()
	slices.Sort(took)
	b.ReportMetric(float64(took[len(took)/2].Microseconds())/1000, unit)
}

// BenchmarkStart measures the start, the phases of the start, and the stop of a control plane as
// tests use it. It reports medians.
func BenchmarkStart(b *testing.B) { benchmarkStarts(b, server.Options{}) }

// benchmarkStarts starts and stops control planes, and reports the medians.
func benchmarkStarts(b *testing.B, options server.Options) {
	b.Helper()
	phases := map[string][]time.Duration{}
	var ready, stop []time.Duration
	for b.Loop() {
		began := time.Now()
		s, err := server.New(options)
		if err != nil {
			b.Fatal(err)
		}
		if err := s.Start(b.Context()); err != nil {
			b.Fatal(err)
		}
		ready = append(ready, time.Since(began))
		for _, p := range s.Timeline() {
			phases[p.Name] = append(phases[p.Name], p.Took)
		}
		began = time.Now()
		if err := s.Stop(b.Context()); err != nil {
			b.Fatal(err)
		}
		stop = append(stop, time.Since(began))
	}
	reportMedian(b, "ready-ms", ready)
	reportMedian(b, "stop-ms", stop)
	for name, took := range phases {
		reportMedian(b, name+"-ms", took)
	}
}

// BenchmarkFirstStart measures the first start in a process, which makes what all control planes of
// the process share. Each is in a process of its own. It reports the median.
func BenchmarkFirstStart(b *testing.B) {
	var ready []time.Duration
	for b.Loop() {
		out, err := exec.CommandContext(b.Context(), os.Args[0], "-test.run=^$",
			"-test.bench=^BenchmarkStart$", "-test.benchtime=1x").Output()
		if err != nil {
			b.Fatalf("%v\n%s", err, out)
		}
		took := regexp.MustCompile(`[0-9.]+ ready-ms`).FindString(string(out))
		var ms float64
		if _, err := fmt.Sscanf(took, "%f ready-ms", &ms); err != nil {
			b.Fatalf("%v in:\n%s", err, out)
		}
		ready = append(ready, time.Duration(ms*float64(time.Millisecond)))
	}
	reportMedian(b, "ready-ms", ready)
}

// BenchmarkFirstCustomResource measures the time from the creation of a CRD to the creation of the
// first custom resource. It reports the median over many CRDs.
func BenchmarkFirstCustomResource(b *testing.B) {
	s := servertest.Run(b)
	definitions, err := apiextensionsclient.NewForConfig(s.RESTConfig())
	if err != nil {
		b.Fatal(err)
	}
	client, err := dynamic.NewForConfig(s.RESTConfig())
	if err != nil {
		b.Fatal(err)
	}
	var took []time.Duration
	for b.Loop() {
		group := fmt.Sprintf("g%d.example.com", len(took))
		crd := widgets(group)
		began := time.Now()
		if _, err := definitions.ApiextensionsV1().CustomResourceDefinitions().Create(b.Context(), crd,
			metav1.CreateOptions{}); err != nil {
			b.Fatal(err)
		}
		widget := &unstructured.Unstructured{Object: map[string]any{
			"apiVersion": group + "/v1", "kind": "Widget", "metadata": map[string]any{"name": "first"},
		}}
		resource := client.Resource(schema.GroupVersionResource{
			Group:    group,
			Version:  "v1",
			Resource: "widgets",
		}).Namespace(metav1.NamespaceDefault)
		// Creation fails until the CRD is established.
		for _, err = resource.Create(b.Context(), widget, metav1.CreateOptions{}); err != nil; {
			if b.Context().Err() != nil {
				b.Fatal(err)
			}
			_, err = resource.Create(b.Context(), widget, metav1.CreateOptions{})
		}
		took = append(took, time.Since(began))
	}
	reportMedian(b, "first-custom-resource-ms", took)
}

func widgets(group string) *apiextensionsv1.CustomResourceDefinition {
	return &apiextensionsv1.CustomResourceDefinition{
		ObjectMeta: metav1.ObjectMeta{Name: "widgets." + group},
		Spec: apiextensionsv1.CustomResourceDefinitionSpec{
			Group: group,
			Names: apiextensionsv1.CustomResourceDefinitionNames{Plural: "widgets", Kind: "Widget"},
			Scope: apiextensionsv1.NamespaceScoped,
			Versions: []apiextensionsv1.CustomResourceDefinitionVersion{{
				Name: "v1", Served: true, Storage: true,
				Schema: &apiextensionsv1.CustomResourceValidation{
					OpenAPIV3Schema: &apiextensionsv1.JSONSchemaProps{Type: "object"},
				},
			}},
		},
	}
}

// transport is a way to reach a control plane.
type transport struct {
	name   string
	config func(s *server.Server, user string, groups ...string) (*rest.Config, error)
}

var transports = []transport{
	{"tls", (*server.Server).User},
	{"in-process", (*server.Server).InProcessConfig},
}

// clients returns n clients that do not share connections, because each has its own certificate.
func (t transport) clients(b *testing.B, s *server.Server, n int) []kubernetes.Interface {
	b.Helper()
	var all []kubernetes.Interface
	for i := range n {
		config, err := t.config(s, "client-"+strconv.Itoa(i), "system:masters")
		if err != nil {
			b.Fatal(err)
		}
		client, err := kubernetes.NewForConfig(config)
		if err != nil {
			b.Fatal(err)
		}
		all = append(all, client)
	}
	return all
}

// inParallel calls do with 1 and with 16 concurrent clients and reports the number of calls per
// second.
func inParallel(
	b *testing.B, t transport, s *server.Server,
	do func(ctx context.Context, client kubernetes.Interface) error,
) {
	for _, count := range []int{1, 16} {
		b.Run(fmt.Sprintf("clients=%d", count), func(b *testing.B) {
			clients := t.clients(b, s, count)
			var running sync.WaitGroup
			var begun atomic.Int64
			b.ResetTimer()
			for _, client := range clients {
				running.Go(func() {
					for begun.Add(1) <= int64(b.N) {
						if err := do(b.Context(), client); err != nil {
							b.Error(err)
						}
					}
				})
			}
			running.Wait()
			b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "requests/s")
		})
	}
}

func named(name string) *corev1.ConfigMap {
	return &corev1.ConfigMap{
		ObjectMeta: metav1.ObjectMeta{Name: name},
		Data:       map[string]string{"color": "green"},
	}
}

// BenchmarkCreate creates small objects in an ephemeral control plane and in one that waits for the
// disk.
func BenchmarkCreate(b *testing.B) {
	create := func(ctx context.Context, client kubernetes.Interface) error {
		object := named("")
		object.GenerateName = "created-"
		_, err := client.CoreV1().ConfigMaps(metav1.NamespaceDefault).Create(ctx, object,
			metav1.CreateOptions{})
		return err
	}
	b.Run("ephemeral", func(b *testing.B) {
		s := servertest.Run(b)
		for _, t := range transports {
			b.Run(t.name, func(b *testing.B) { inParallel(b, t, s, create) })
		}
	})
	b.Run("kept", func(b *testing.B) {
		s := servertest.Run(b, func(o *server.Options) { o.DataDir = filepath.Join(b.TempDir(), "data") })
		inParallel(b, transports[0], s, create)
	})
}

// BenchmarkCreatePod creates small pods, which more admission plugins look at than at other
// objects.
func BenchmarkCreatePod(b *testing.B) {
	s := servertest.Run(b, servertest.WithoutControllers, func(o *server.Options) {
		o.Admission = server.NewAdmissionOptions()
		o.Admission.DisablePlugins = []string{"ServiceAccount"}
	})
	inParallel(b, transports[0], s,
		func(ctx context.Context, client kubernetes.Interface) error {
			pod := &corev1.Pod{
				ObjectMeta: metav1.ObjectMeta{GenerateName: "created-"},
				Spec:       corev1.PodSpec{Containers: []corev1.Container{{Name: "main", Image: "image"}}},
			}
			_, err := client.CoreV1().Pods(metav1.NamespaceDefault).Create(ctx, pod, metav1.CreateOptions{})
			return err
		})
}

// BenchmarkGet reads one small object.
func BenchmarkGet(b *testing.B) {
	s := servertest.Run(b)
	maps := kubernetes.NewForConfigOrDie(s.RESTConfig()).CoreV1().ConfigMaps(metav1.NamespaceDefault)
	if _, err := maps.Create(b.Context(), named("shown"), metav1.CreateOptions{}); err != nil {
		b.Fatal(err)
	}
	for _, t := range transports {
		b.Run(t.name, func(b *testing.B) {
			inParallel(b, t, s, func(ctx context.Context, client kubernetes.Interface) error {
				_, err := client.CoreV1().ConfigMaps(metav1.NamespaceDefault).Get(ctx, "shown",
					metav1.GetOptions{})
				return err
			})
		})
	}
}

// BenchmarkUpdateToWatch measures the time from sending an update until another client's watch
// receives it, and until the update returns. It reports the medians.
func BenchmarkUpdateToWatch(b *testing.B) {
	s := servertest.Run(b)
	for _, t := range transports {
		b.Run(t.name, func(b *testing.B) { updateToWatch(b, t.clients(b, s, 2)) })
	}
}

func updateToWatch(b *testing.B, pair []kubernetes.Interface) {
	maps := pair[0].CoreV1().ConfigMaps(metav1.NamespaceDefault)
	object := named("")
	object.GenerateName = "changing-"
	object, err := maps.Create(b.Context(), object, metav1.CreateOptions{})
	if err != nil {
		b.Fatal(err)
	}
	watch, err := pair[1].CoreV1().ConfigMaps(metav1.NamespaceDefault).Watch(b.Context(),
		metav1.ListOptions{
			FieldSelector: "metadata.name=" + object.Name, ResourceVersion: object.ResourceVersion,
		})
	if err != nil {
		b.Fatal(err)
	}
	defer watch.Stop()
	var took, updates []time.Duration
	for b.Loop() {
		began := time.Now()
		object.Data["n"] = strconv.Itoa(len(took))
		if object, err = maps.Update(b.Context(), object, metav1.UpdateOptions{}); err != nil {
			b.Fatal(err)
		}
		updates = append(updates, time.Since(began))
		for event := range watch.ResultChan() {
			if shown, ok := event.Object.(*corev1.ConfigMap); !ok ||
				shown.ResourceVersion == object.ResourceVersion {
				break
			}
		}
		took = append(took, time.Since(began))
	}
	reportMedian(b, "update-ms", updates)
	reportMedian(b, "update-to-watch-ms", took)
}
