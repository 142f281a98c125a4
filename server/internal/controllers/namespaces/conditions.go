package namespaces

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// condition is one of the conditions of a namespace that is being deleted, with its reasons when things are well and when not.
type condition struct {
	kind           corev1.NamespaceConditionType
	well, unwell   string
	message        string
	wrong          bool
	wrongBecauseOf string
}

// report writes the findings into the conditions, types and reasons as kube-controller-manager has them. It reports whether something changed.
func (f *findings) report(status *corev1.NamespaceStatus) bool {
	discovery, groupVersion, content := errors.Join(f.discovery...), errors.Join(f.groupVersion...), errors.Join(f.content...)
	changed := false
	for _, c := range []condition{
		{corev1.NamespaceDeletionDiscoveryFailure, "ResourcesDiscovered", "DiscoveryFailed",
			"discovery lists all resources", discovery != nil, text(discovery)},
		{corev1.NamespaceDeletionGVParsingFailure, "ParsedGroupVersions", "GroupVersionParsingFailed",
			"the group versions that discovery lists are well-formed", groupVersion != nil, text(groupVersion)},
		{corev1.NamespaceDeletionContentFailure, "ContentDeleted", "ContentDeletionFailed",
			"the content is deleted, or marked for deletion", content != nil, text(content)},
		{corev1.NamespaceContentRemaining, "ContentRemoved", "SomeResourcesRemain",
			"nothing is left in the namespace", len(f.remaining) > 0, "left in the namespace: " + f.remainingText()},
		{corev1.NamespaceFinalizersRemaining, "ContentHasNoFinalizers", "SomeFinalizersRemain",
			"no finalizer holds content back", len(f.finalizers) > 0, "finalizers hold content back: " + f.finalizersText()},
	} {
		changed = c.set(status) || changed
	}
	return changed
}

func (c *condition) set(status *corev1.NamespaceStatus) bool {
	want := corev1.NamespaceCondition{Type: c.kind, Status: corev1.ConditionFalse, Reason: c.well, Message: c.message}
	if c.wrong {
		want.Status, want.Reason, want.Message = corev1.ConditionTrue, c.unwell, c.wrongBecauseOf
	}
	i := slices.IndexFunc(status.Conditions, func(is corev1.NamespaceCondition) bool { return is.Type == c.kind })
	if i < 0 {
		want.LastTransitionTime = metav1.Now()
		status.Conditions = append(status.Conditions, want)
		return true
	}
	is := &status.Conditions[i]
	want.LastTransitionTime = is.LastTransitionTime
	if *is == want {
		return false
	}
	if is.Status != want.Status {
		want.LastTransitionTime = metav1.Now()
	}
	*is = want
	return true
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
		parts = append(parts, fmt.Sprintf("%d of %s", n, gvr.GroupResource()))
	}
	slices.Sort(parts)
	return strings.Join(parts, ", ")
}

func (f *findings) finalizersText() string {
	var parts []string
	for _, name := range slices.Sorted(maps.Keys(f.finalizers)) {
		parts = append(parts, fmt.Sprintf("%s on %d", name, f.finalizers[name]))
	}
	return strings.Join(parts, ", ")
}
