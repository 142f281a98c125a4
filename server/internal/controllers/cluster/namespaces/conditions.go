package namespaces

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/kinproc/kinproc/server/internal/controllers/loop"
)

// condition is a condition of a namespace that is being deleted, with its reason when all is well
// and its reason when something is wrong.
type condition struct {
	kind           corev1.NamespaceConditionType
	well, unwell   string
	message        string
	wrong          bool
	wrongBecauseOf string
}

// report sets the conditions from the findings, with the types and reasons that
// kube-controller-manager uses. It reports whether anything changed.
func (f *findings) report(status *corev1.NamespaceStatus) bool {
	discovery, groupVersion, content := errors.Join(f.discovery...), errors.Join(f.groupVersion...),
		errors.Join(f.content...)
	changed := false
	for _, c := range []condition{
		{corev1.NamespaceDeletionDiscoveryFailure, "ResourcesDiscovered", "DiscoveryFailed",
			"All resources successfully discovered", discovery != nil, text(discovery)},
		{corev1.NamespaceDeletionGVParsingFailure, "ParsedGroupVersions", "GroupVersionParsingFailed",
			"All legacy kube types successfully parsed", groupVersion != nil, text(groupVersion)},
		{corev1.NamespaceDeletionContentFailure, "ContentDeleted", "ContentDeletionFailed",
			"All content successfully deleted, may be waiting on finalization",
			content != nil, text(content)},
		{corev1.NamespaceContentRemaining, "ContentRemoved", "SomeResourcesRemain",
			"All content successfully removed", len(f.remaining) > 0,
			"Some resources are remaining: " + f.remainingText()},
		{corev1.NamespaceFinalizersRemaining, "ContentHasNoFinalizers", "SomeFinalizersRemain",
			"All content-preserving finalizers finished", len(f.finalizers) > 0,
			"Some content in the namespace has finalizers remaining: " + f.finalizersText()},
	} {
		changed = c.set(status) || changed
	}
	return changed
}

func (c *condition) set(status *corev1.NamespaceStatus) bool {
	want := corev1.NamespaceCondition{
		Type: c.kind, Status: corev1.ConditionFalse, Reason: c.well, Message: c.message,
		LastTransitionTime: metav1.Now(),
	}
	if c.wrong {
		want.Status, want.Reason, want.Message = corev1.ConditionTrue, c.unwell, c.wrongBecauseOf
	}
	before := slices.Clone(status.Conditions)
	loop.SetCondition(&status.Conditions, want, func(c *corev1.NamespaceCondition) (
		corev1.NamespaceConditionType, corev1.ConditionStatus, *metav1.Time,
	) {
		return c.Type, c.Status, &c.LastTransitionTime
	})
	return !slices.Equal(before, status.Conditions)
}

func text(err error) string {
	if err == nil {
		return ""
	}
	return strings.ReplaceAll(err.Error(), "\n", "; ")
}

func (f *findings) remainingText() string {
	var parts []string
	for gvr, n := range f.remaining {
		parts = append(parts, fmt.Sprintf("%s.%s has %d resource instances", gvr.Resource, gvr.Group, n))
	}
	slices.Sort(parts)
	return strings.Join(parts, ", ")
}

func (f *findings) finalizersText() string {
	var parts []string
	for _, name := range slices.Sorted(maps.Keys(f.finalizers)) {
		parts = append(parts, fmt.Sprintf("%s in %d resource instances", name, f.finalizers[name]))
	}
	return strings.Join(parts, ", ")
}
