package apitest

import (
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"

	"github.com/kinproc/kinproc/server/servertest"
)

// The race detector fails this test if a server that starts changes what patches read.
func TestPatchesWhileServersStart(t *testing.T) {
	t.Parallel()
	s, namespace := shared(t)
	maps := kubernetes.NewForConfigOrDie(s.RESTConfig()).CoreV1().ConfigMaps(namespace)
	data := map[string]string{"a": strings.Repeat("a", 500_000)}
	if _, err := maps.Create(t.Context(), &corev1.ConfigMap{
		ObjectMeta: metav1.ObjectMeta{Name: "patched"}, Data: data,
	}, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	// In the end, the object is as large as before.
	const change = `{"op":"copy","from":"/data/a","path":"/data/b"},` +
		`{"op":"remove","path":"/data/b"},`
	patch := func(copies int) error {
		_, err := maps.Patch(t.Context(), "patched", types.JSONPatchType,
			[]byte("["+strings.TrimSuffix(strings.Repeat(change, copies), ",")+"]"),
			metav1.PatchOptions{})
		return err
	}
	started := make(chan struct{})
	patched := make(chan error, 1)
	go func() {
		var err error
		for err == nil {
			select {
			case <-started:
				patched <- patch(6)
				return
			default:
				err = patch(1)
			}
		}
		patched <- err
	}()
	for range 3 {
		servertest.Run(t, servertest.WithoutControllers)
	}
	close(started)
	if err := <-patched; err != nil {
		t.Error(err)
	}
	if err := patch(7); !apierrors.IsInvalid(err) {
		t.Errorf("copies of more than 3 MiB: %v", err)
	}
}
