package podspec

import (
	"strings"

	corev1 "k8s.io/api/core/v1"
)

// ContainerCells returns the table cells for the names and images of a pod spec's containers, as
// printed by kubectl get -o wide.
func ContainerCells(spec *corev1.PodSpec) (names, images string) {
	var n, i []string
	for _, c := range spec.Containers {
		n = append(n, c.Name)
		i = append(i, c.Image)
	}
	return strings.Join(n, ","), strings.Join(i, ",")
}
