package disturb

import (
	"context"
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
)

// maxWarnings is how many events an error names at most.
const maxWarnings = 10

// warnings returns the last Warning events as lines. They are an addition to an error: none are
// returned if they cannot be read.
func (c *cluster) warnings(ctx context.Context) []string {
	list, err := c.dynamic.Resource(corev1.SchemeGroupVersion.WithResource("events")).List(ctx,
		metav1.ListOptions{FieldSelector: "type=" + corev1.EventTypeWarning})
	if err != nil {
		return nil
	}
	slices.SortStableFunc(list.Items, func(a, b unstructured.Unstructured) int {
		return a.GetCreationTimestamp().Time.Compare(b.GetCreationTimestamp().Time)
	})
	var all []string
	for _, item := range list.Items[max(0, len(list.Items)-maxWarnings):] {
		var e corev1.Event
		if err := runtime.DefaultUnstructuredConverter.FromUnstructured(item.Object, &e); err != nil {
			continue
		}
		o := e.InvolvedObject
		line := fmt.Sprintf("%s, %s %s: %s", e.Reason, o.Kind, join("/", o.Namespace, o.Name),
			strings.TrimSpace(e.Message))
		count := int(e.Count)
		if e.Series != nil {
			count = int(e.Series.Count)
		}
		if count > 1 {
			line += fmt.Sprintf(" (%d times)", count)
		}
		all = append(all, line)
	}
	if n := len(list.Items) - maxWarnings; n > 0 {
		all = append([]string{fmt.Sprintf("… %d earlier ones", n)}, all...)
	}
	return all
}
