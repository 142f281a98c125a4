package scheduler

import (
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
)

// Sizes of the images of a pod that a node has, below and above which the score does not change.
// The latter is that of one image.
const (
	smallImages = 23 << 20
	largeImage  = 1000 << 20
)

// setImages remembers the images of a node.
func (c *cluster) setImages(n *node, images []corev1.ContainerImage) {
	if n.Node != nil && slices.EqualFunc(n.Status.Images, images,
		func(a, b corev1.ContainerImage) bool {
			return a.SizeBytes == b.SizeBytes && slices.Equal(a.Names, b.Names)
		}) {
		return
	}
	for name := range n.images {
		add(c.images, name, -1)
	}
	n.images = map[string]int64{}
	for _, image := range images {
		for _, name := range image.Names {
			if _, known := n.images[name]; !known {
				add(c.images, name, +1)
			}
			n.images[name] = image.SizeBytes
		}
	}
}

// imageScores prefers nodes that have the images of the pod, if these are large. An image that few
// nodes have counts less, so that not all pods gather there.
func (a *attempt) imageScores(nodes []*node) []int64 {
	if len(a.cluster.images) == 0 {
		return nil
	}
	names := imagesOf(a.Pod)
	scores := make([]int64, len(nodes))
	for i, n := range nodes {
		var sum int64
		for _, name := range names {
			spread := float64(a.cluster.images[name]) / float64(len(a.cluster.order))
			sum += int64(float64(n.images[name]) * spread)
		}
		most := largeImage * int64(len(names))
		scores[i] = maxScore * (min(max(sum, smallImages), most) - smallImages) / (most - smallImages)
	}
	return scores
}

// imagesOf returns the names of the images of a pod, as nodes have them.
func imagesOf(p *corev1.Pod) (names []string) {
	add := func(name string) {
		if strings.LastIndex(name, ":") <= strings.LastIndex(name, "/") {
			name += ":latest"
		}
		names = append(names, name)
	}
	for i := range p.Spec.InitContainers {
		add(p.Spec.InitContainers[i].Image)
	}
	for i := range p.Spec.Containers {
		add(p.Spec.Containers[i].Image)
	}
	for i := range p.Spec.Volumes {
		if image := p.Spec.Volumes[i].Image; image != nil {
			add(image.Reference)
		}
	}
	return names
}
