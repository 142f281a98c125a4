package looptest

import (
	"context"
	"fmt"
	"sync"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/kinproc/kinproc/server/internal/controllers/nodes/nodettl"
	"github.com/kinproc/kinproc/server/internal/controllers/workloadtest"
)

// TestNodeTTL adds nodes until kubelets may cache objects for longer. It takes a second because it
// has more than a hundred nodes.
func TestNodeTTL(t *testing.T) {
	t.Parallel()
	_, client := workloadtest.Run(t, []string{nodettl.Name})
	ctx, nodes := t.Context(), client.CoreV1().Nodes()
	add := func(from, to int) {
		t.Helper()
		var creations sync.WaitGroup
		for i := from; i < to; i++ {
			creations.Go(func() {
				if _, err := nodes.Create(ctx, &corev1.Node{
					ObjectMeta: metav1.ObjectMeta{Name: fmt.Sprint("n", i)},
				}, metav1.CreateOptions{}); err != nil {
					t.Error(err)
				}
			})
		}
		creations.Wait()
	}
	await := func(n int, ttl string) {
		t.Helper()
		workloadtest.Until(t, func(ctx context.Context) string {
			list, err := nodes.List(ctx, metav1.ListOptions{})
			if err != nil {
				return err.Error()
			}
			if len(list.Items) != n {
				return fmt.Sprintf("%d nodes, want %d", len(list.Items), n)
			}
			for _, node := range list.Items {
				if is := node.Annotations[corev1.ObjectTTLAnnotationKey]; is != ttl {
					return fmt.Sprintf("node %s has %q, want %q", node.Name, is, ttl)
				}
			}
			return ""
		})
	}
	add(0, 1)
	await(1, "0")
	workloadtest.Must(nodes.Patch(ctx, "n0", types.MergePatchType,
		[]byte(`{"metadata":{"annotations":{"node.alpha.kubernetes.io/ttl":"7"}}}`),
		metav1.PatchOptions{}))(t)
	await(1, "0")
	add(1, 100)
	await(100, "0")
	add(100, 101)
	await(101, "15")
	for i := range 12 {
		workloadtest.OK(t, nodes.Delete(ctx, fmt.Sprint("n", i), metav1.DeleteOptions{}))
	}
	await(89, "0")
}
