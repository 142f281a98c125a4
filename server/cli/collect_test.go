package cli_test

import (
	"context"
	"fmt"
	"os"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/wait"
)

// TestKilledWhileCollecting kills the program with SIGKILL while dependents are deleted, and checks
// that the others are deleted when it runs again.
func TestKilledWhileCollecting(t *testing.T) {
	t.Parallel()
	const dependents = 200
	for _, policy := range []metav1.DeletionPropagation{
		metav1.DeletePropagationBackground, metav1.DeletePropagationForeground,
	} {
		t.Run(string(policy), func(t *testing.T) {
			t.Parallel()
			dir := t.TempDir()
			p := startProgram(t, dir)
			maps := p.client().CoreV1().ConfigMaps(metav1.NamespaceDefault)
			create := func(name string, owners ...metav1.OwnerReference) *corev1.ConfigMap {
				m, err := maps.Create(t.Context(), &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{
					Name: name, Labels: map[string]string{"test": "true"}, OwnerReferences: owners,
				}}, metav1.CreateOptions{})
				if err != nil {
					t.Fatal(err)
				}
				return m
			}
			owner := create("owner")
			for i := range dependents {
				create(fmt.Sprint("dependent-", i), metav1.OwnerReference{
					APIVersion: "v1", Kind: "ConfigMap", Name: owner.Name, UID: owner.UID,
					BlockOwnerDeletion: new(true),
				})
			}
			// Nothing is waited for before the kill but that the collector has begun.
			left := func(at func(n int) bool) {
				t.Helper()
				err := wait.PollUntilContextTimeout(t.Context(), time.Millisecond, patience, true,
					func(ctx context.Context) (bool, error) {
						list, err := maps.List(ctx, metav1.ListOptions{LabelSelector: "test"})
						return err == nil && at(len(list.Items)), err
					})
				if err != nil {
					t.Fatal(err)
				}
			}
			if err := maps.Delete(t.Context(), "owner",
				metav1.DeleteOptions{PropagationPolicy: &policy}); err != nil {
				t.Fatal(err)
			}
			left(func(n int) bool { return n < dependents })
			p.kill()
			if err := os.Remove(p.kubeconfig); err != nil {
				t.Fatal(err)
			}
			p = startProgram(t, dir)
			maps = p.client().CoreV1().ConfigMaps(metav1.NamespaceDefault)
			left(func(n int) bool { return n == 0 })
		})
	}
}
