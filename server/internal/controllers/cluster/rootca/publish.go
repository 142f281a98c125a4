package rootca

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
)

// Publish replaces the bundle in the config maps that exist. A control plane that begins with
// another one's objects calls it before clients can read the other one's bundle.
func Publish(ctx context.Context, client kubernetes.Interface, bundle []byte) error {
	all := metav1.SingleObject(metav1.ObjectMeta{Name: ConfigMap})
	for {
		list, err := client.CoreV1().ConfigMaps(metav1.NamespaceAll).List(ctx, all)
		if err != nil {
			return fmt.Errorf("list the config maps %s: %w", ConfigMap, err)
		}
		errs := make([]error, len(list.Items))
		var updates sync.WaitGroup
		for i, m := range list.Items {
			if m.Data[Key] == string(bundle) {
				continue
			}
			updates.Go(func() {
				m.Data = map[string]string{Key: string(bundle)}
				_, errs[i] = client.CoreV1().ConfigMaps(m.Namespace).Update(ctx, &m, metav1.UpdateOptions{})
			})
		}
		updates.Wait()
		failed := errors.Join(errs...)
		raced := !slices.ContainsFunc(errs, func(err error) bool {
			return err != nil && !apierrors.IsConflict(err) && !apierrors.IsNotFound(err)
		})
		if failed == nil || !raced {
			return failed
		}
		// Something changed one of them at the same time. Look again.
	}
}
