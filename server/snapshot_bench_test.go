package server_test

import (
	"fmt"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/kubernetes"

	"github.com/kinproc/kinproc/server"
	"github.com/kinproc/kinproc/server/servertest"
)

// defineWidgets creates CRDs of widgets in n groups, g0.example.com and so on.
func defineWidgets(b *testing.B, s *server.Server, n int) {
	b.Helper()
	var objects []runtime.Object
	for i := range n {
		objects = append(objects, widgets(fmt.Sprintf("g%d.example.com", i)))
	}
	servertest.CRDs(b, s, servertest.Objects(objects...))
}

// BenchmarkFork measures how long a fork of a control plane with 50 CRDs takes until it is ready,
// its phases, and its stop. It reports medians.
func BenchmarkFork(b *testing.B) {
	s := servertest.Run(b)
	defineWidgets(b, s, 50)
	snapshot, err := s.Snapshot(b.Context())
	if err != nil {
		b.Fatal(err)
	}
	benchmarkStarts(b, server.Options{From: snapshot})
}

// BenchmarkReset measures a reset after a test has created a namespace with 20 objects and 10
// custom resources, in a control plane with 50 CRDs. It reports medians.
func BenchmarkReset(b *testing.B) {
	s := servertest.Run(b)
	config, err := s.InProcessConfig("tester", "system:masters")
	if err != nil {
		b.Fatal(err)
	}
	client, custom := kubernetes.NewForConfigOrDie(config), dynamic.NewForConfigOrDie(config)
	createWidgets := func(name string, groups int) {
		for i := range groups {
			gv := schema.GroupVersion{Group: fmt.Sprintf("g%d.example.com", i), Version: "v1"}
			widget := &unstructured.Unstructured{}
			widget.SetGroupVersionKind(gv.WithKind("Widget"))
			widget.SetName(name)
			if _, err := custom.Resource(gv.WithResource("widgets")).Namespace("default").Create(
				b.Context(), widget, metav1.CreateOptions{}); err != nil {
				b.Fatal(err)
			}
		}
	}
	defineWidgets(b, s, 50)
	createWidgets("first", 50)
	snapshot, err := s.Snapshot(b.Context())
	if err != nil {
		b.Fatal(err)
	}
	reset := func() {
		if err := s.Reset(b.Context(), snapshot); err != nil {
			b.Fatal(err)
		}
	}
	reset() // reads the keys of the snapshot
	change := func(definition bool) {
		if _, err := client.CoreV1().Namespaces().Create(b.Context(), &corev1.Namespace{
			ObjectMeta: metav1.ObjectMeta{Name: "test"},
		}, metav1.CreateOptions{}); err != nil {
			b.Fatal(err)
		}
		for i := range 20 {
			if _, err := client.CoreV1().ConfigMaps("test").Create(b.Context(),
				named(fmt.Sprint("map-", i)), metav1.CreateOptions{}); err != nil {
				b.Fatal(err)
			}
		}
		createWidgets("second", 10)
		if definition {
			servertest.CRDs(b, s, servertest.Objects(widgets("new.example.com")))
		}
	}
	for _, definition := range []bool{false, true} {
		b.Run(fmt.Sprintf("definition=%t", definition), func(b *testing.B) {
			var took []time.Duration
			for b.Loop() {
				change(definition)
				began := time.Now()
				reset()
				took = append(took, time.Since(began))
			}
			reportMedian(b, "reset-ms", took)
		})
	}
}
