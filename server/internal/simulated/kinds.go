package simulated

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/validation"
)

// KindLabel is on the nodes of a [Kind], with the kind's name.
const KindLabel = "kinproc.dev/node-kind"

// Kind is a kind of nodes that differ from the others.
type Kind struct {
	// Name is a part of the nodes' names: simulated-NAME-0 and so on.
	Name string
	// Count is the number of nodes.
	Count int
	// Labels and Taints are added to those of every node.
	Labels map[string]string
	Taints []corev1.Taint
	// Capacity is on top of that of every node.
	Capacity corev1.ResourceList
}

// ownLabels are those that say what a node is, and so cannot be chosen.
func ownLabels() []string { return []string{Label, KindLabel, corev1.LabelHostname} }

// maxKindName leaves room for the rest of a node's name in a label, which has at most 63 bytes.
const maxKindName = 40

// Check returns the first mistake in a kind.
func (k Kind) Check() error {
	if len(k.Name) > maxKindName || len(validation.IsDNS1123Label(k.Name)) > 0 {
		return fmt.Errorf("%q is not a name of a kind of nodes: it must have at most %d small letters, "+
			"digits and dashes, and begin and end with a letter or digit", k.Name, maxKindName)
	}
	if k.Count < 0 {
		return fmt.Errorf("the number of nodes of kind %s, %d, is negative", k.Name, k.Count)
	}
	for _, key := range slices.Sorted(maps.Keys(k.Labels)) {
		if slices.Contains(ownLabels(), key) {
			return fmt.Errorf("the label %s is the node's own, and cannot be chosen", key)
		}
		if wrong := validation.IsQualifiedName(key); len(wrong) > 0 {
			return fmt.Errorf("%q is not a key of a label: %s", key, strings.Join(wrong, "; "))
		}
		if wrong := validation.IsValidLabelValue(k.Labels[key]); len(wrong) > 0 {
			return fmt.Errorf("%q is not a value of the label %s: %s", k.Labels[key], key,
				strings.Join(wrong, "; "))
		}
	}
	for i, t := range k.Taints {
		if err := checkTaint(t); err != nil {
			return err
		}
		if slices.ContainsFunc(k.Taints[:i], func(before corev1.Taint) bool {
			return t.MatchTaint(&before)
		}) {
			return fmt.Errorf("the taint %s with the effect %s is given twice", t.Key, t.Effect)
		}
	}
	return CheckCapacity(k.Capacity)
}

// Effects are the effects of taints.
func Effects() []string {
	return []string{string(corev1.TaintEffectNoSchedule), string(corev1.TaintEffectPreferNoSchedule),
		string(corev1.TaintEffectNoExecute)}
}

func checkTaint(t corev1.Taint) error {
	if wrong := validation.IsQualifiedName(t.Key); len(wrong) > 0 {
		return fmt.Errorf("%q is not a key of a taint: %s", t.Key, strings.Join(wrong, "; "))
	}
	if wrong := validation.IsValidLabelValue(t.Value); len(wrong) > 0 {
		return fmt.Errorf("%q is not a value of the taint %s: %s", t.Value, t.Key,
			strings.Join(wrong, "; "))
	}
	if !slices.Contains(Effects(), string(t.Effect)) {
		return fmt.Errorf("%q is not an effect of a taint: it must be one of %s", t.Effect,
			strings.Join(Effects(), ", "))
	}
	if t.Key == corev1.TaintNodeNotReady || t.Key == corev1.TaintNodeUnreachable {
		return fmt.Errorf("the taint %s says how a node fares, and cannot be chosen", t.Key)
	}
	return nil
}

// CheckCapacity checks the capacity of nodes, which the API would refuse again and again.
func CheckCapacity(capacity corev1.ResourceList) error {
	for _, name := range slices.Sorted(maps.Keys(capacity)) {
		q := capacity[name]
		if msgs := validation.IsQualifiedName(string(name)); len(msgs) > 0 {
			return fmt.Errorf("%q is not the name of a resource: %s", name, strings.Join(msgs, "; "))
		}
		if q.Sign() < 0 {
			return fmt.Errorf("the capacity of %s, %s, is negative", name, &q)
		}
		counted := name == corev1.ResourcePods || strings.Contains(string(name), "/")
		if counted && q.MilliValue()%1000 != 0 {
			return fmt.Errorf("the capacity of %s, %s, is not a whole number", name, &q)
		}
	}
	return nil
}

// checkKinds returns the first mistake in the kinds, or if two of them have the same name.
func checkKinds(kinds []Kind) error {
	for i, k := range kinds {
		if err := k.Check(); err != nil {
			return err
		}
		if slices.ContainsFunc(kinds[:i], func(other Kind) bool { return other.Name == k.Name }) {
			return fmt.Errorf("there are two kinds of nodes with the name %s", k.Name)
		}
	}
	return nil
}

// most returns the number of all nodes, and the capacity of those that hold the most pods: all
// nodes get ranges of addresses of one size.
func most(count int, capacity corev1.ResourceList, kinds []Kind) (int, corev1.ResourceList) {
	largest := withDefaults(capacity)
	for _, k := range kinds {
		count += k.Count
		if of := k.capacity(capacity); of.Pods().Cmp(*largest.Pods()) > 0 {
			largest = of
		}
	}
	return count, largest
}

// capacity returns the capacity of the kind's nodes, given that of all.
func (k Kind) capacity(ofAll corev1.ResourceList) corev1.ResourceList {
	all := withDefaults(ofAll)
	maps.Copy(all, k.Capacity)
	return all
}

// setKind gives a node the labels and taints of its kind. What others have added stays.
func (k *Kind) setKind(of *corev1.Node) {
	if k == nil {
		return
	}
	if of.Labels == nil {
		of.Labels = map[string]string{}
	}
	maps.Copy(of.Labels, k.Labels)
	of.Labels[KindLabel] = k.Name
	for _, t := range k.Taints {
		i := slices.IndexFunc(of.Spec.Taints, func(old corev1.Taint) bool { return t.MatchTaint(&old) })
		if i < 0 {
			of.Spec.Taints = append(of.Spec.Taints, t)
		} else {
			of.Spec.Taints[i].Value = t.Value
		}
	}
}
