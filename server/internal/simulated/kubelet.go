package simulated

import (
	"context"
	"io"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/kubernetes"

	"github.com/kinproc/kinproc/chain/core"
)

// The annotations by which containers answer. Those about containers have the name of one after a
// dot, as the others do.
const (
	logAnnotation      = "kinproc.dev/log"      // text
	logFileAnnotation  = "kinproc.dev/log-file" // the name of a file
	logRateAnnotation  = "kinproc.dev/log-rate" // lines per second
	commandsAnnotation = "kinproc.dev/commands" // the name of a ConfigMap
	// forwardPrefix is before the number of a port. The value is the loopback port of what stands
	// in.
	forwardPrefix = "kinproc.dev/forward-"
)

// Kubelet answers for the containers of simulated pods, none of which runs. What it answers follows
// from annotations.
type Kubelet struct {
	Client kubernetes.Interface
	// Marks say which nodes are simulated.
	Marks Marks
	// Behaviors may be nil.
	Behaviors *Behaviors
	// LogDir is the directory of the files that annotations may name. They may name none if it is
	// empty.
	LogDir string
	// Open are the loopback ports that may stand in for ports of pods.
	Open Ports

	tables tables
	files  files
}

var _ core.Kubelet = &Kubelet{}

// Simulates implements core.Kubelet.
func (k *Kubelet) Simulates(n *corev1.Node) bool { return k.Marks.Simulates(n) }

// container returns a container of a pod, and what it is for.
func container(p *corev1.Pod, name string) (*corev1.Container, containerKind) {
	for i := range p.Spec.Containers {
		if c := &p.Spec.Containers[i]; c.Name == name {
			return c, regular
		}
	}
	for i := range p.Spec.InitContainers {
		if c := &p.Spec.InitContainers[i]; c.Name == name {
			return c, kindOf(c)
		}
	}
	for i := range p.Spec.EphemeralContainers {
		if c := corev1.Container(p.Spec.EphemeralContainers[i].EphemeralContainerCommon); c.Name == name {
			return &c, ephemeral
		}
	}
	return &corev1.Container{Name: name}, regular
}

// statusOfContainer returns the status of a container, or an empty one.
func statusOfContainer(p *corev1.Pod, name string) corev1.ContainerStatus {
	for _, list := range [][]corev1.ContainerStatus{
		p.Status.ContainerStatuses, p.Status.InitContainerStatuses, p.Status.EphemeralContainerStatuses,
	} {
		for i := range list {
			if list[i].Name == name {
				return list[i]
			}
		}
	}
	return corev1.ContainerStatus{}
}

// Logs implements core.Kubelet.
func (k *Kubelet) Logs(
	ctx context.Context, p *corev1.Pod, name string, o *corev1.PodLogOptions,
) (io.ReadCloser, error) {
	now := time.Now()
	l, b, err := k.log(p, name, o.Previous)
	if err != nil {
		return nil, err
	}
	r := &logReader{log: l, ctx: ctx, timestamps: o.Timestamps, left: -1}
	r.end = l.until(now)
	r.next = max(0, r.end-maxLogLines)
	switch {
	case o.SinceSeconds != nil:
		r.next = max(r.next, l.since(now.Add(-time.Duration(*o.SinceSeconds)*time.Second)))
	case o.SinceTime != nil:
		r.next = max(r.next, l.since(o.SinceTime.Time))
	}
	if o.TailLines != nil {
		r.next = max(r.next, r.end-*o.TailLines)
	}
	r.next = max(r.next, l.bounded(b, r.next, r.end))
	r.begin(b.index)
	if o.LimitBytes != nil {
		r.left = *o.LimitBytes
	}
	if o.Follow && !o.Previous && l.ended.IsZero() {
		return r, k.follow(r, p)
	}
	return r, nil
}
