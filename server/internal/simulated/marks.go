package simulated

import (
	"fmt"
	"strconv"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/labels"
)

// kwokMark is the annotation, or label, of nodes that kwok simulates, with the value kwokFake.
const (
	kwokMark = "kwok.x-k8s.io/node"
	kwokFake = "fake"
)

// Marks say which nodes are simulated: those with [Label], those that are meant for kwok, and those
// that a selector matches.
type Marks struct{ selector labels.Selector }

// ParseMarks returns the marks with a selector of labels, which may be empty and then matches no
// node.
func ParseMarks(selector string) (Marks, error) {
	if selector == "" {
		return Marks{}, nil
	}
	parsed, err := labels.Parse(selector)
	if err != nil {
		return Marks{}, fmt.Errorf("%q is not a selector of labels such as type=kwok: %w", selector, err)
	}
	return Marks{parsed}, nil
}

// Simulates reports whether a node is simulated.
func (m Marks) Simulates(found *corev1.Node) bool {
	return found.Labels[Label] == "true" || isKwoks(found) ||
		m.selector != nil && m.selector.Matches(labels.Set(found.Labels))
}

func isKwoks(found *corev1.Node) bool {
	return found.Annotations[kwokMark] == kwokFake || found.Labels[kwokMark] == kwokFake
}

// isOwn reports whether a node is one that this package makes, at this start or an earlier one.
func isOwn(found *corev1.Node) bool {
	stem := prefix
	if kind := found.Labels[KindLabel]; kind != "" {
		stem += kind + "-"
	}
	number, ok := strings.CutPrefix(found.Name, stem)
	i, err := strconv.Atoi(number)
	return ok && err == nil && strconv.Itoa(i) == number && i >= 0 &&
		found.Labels[Label] == "true" && !isKwoks(found)
}
