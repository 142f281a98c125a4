package legacy

import (
	"context"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apiserver/pkg/registry/rest"
)

// isSimulated reports whether a node is one of those that the server simulates.
func isSimulated(n *corev1.Node) bool { return n.Labels["kinproc.dev/simulated"] == "true" }

// onSimulated reports whether a pod is on a simulated node.
func (k kubelets) onSimulated(ctx context.Context, p *corev1.Pod) (bool, error) {
	if k.nodes == nil || p.Spec.NodeName == "" {
		return false, nil
	}
	node, err := k.nodes.Nodes().Get(ctx, p.Spec.NodeName, metav1.GetOptions{})
	if apierrors.IsNotFound(err) {
		return false, nil
	}
	return err == nil && isSimulated(node), err
}

// logLine is the log of a simulated container.
type logLine struct {
	text string
	err  error
}

var _ rest.ResourceStreamer = &logLine{}

// simulatedLog returns the log of a simulated container: a line that says that there is none.
func simulatedLog(p *corev1.Pod, o *corev1.PodLogOptions) runtime.Object {
	name := o.Container
	if name == "" {
		name = p.Spec.Containers[0].Name
	}
	i := slices.IndexFunc(containerStatuses(&p.Status),
		func(s *corev1.ContainerStatus) bool { return s.Name == name })
	if i < 0 {
		return &logLine{err: notStarted(p, name, "ContainerCreating")}
	}
	s := containerStatuses(&p.Status)[i]
	switch w, last := s.State.Waiting, s.LastTerminationState.Terminated; {
	case o.Previous && last == nil:
		return &logLine{err: apierrors.NewBadRequest(fmt.Sprintf(
			"previous terminated container %q in pod %q not found", name, p.Name))}
	case w != nil && last == nil:
		return &logLine{err: notStarted(p, name, w.Reason)}
	}
	text := fmt.Sprintf("kinproc simulates node %s: container %s does not run and logs nothing\n",
		p.Spec.NodeName, name)
	if o.Timestamps {
		began := p.CreationTimestamp.Time
		if s.State.Running != nil {
			began = s.State.Running.StartedAt.Time
		}
		text = began.UTC().Format(time.RFC3339Nano) + " " + text
	}
	if o.TailLines != nil && *o.TailLines == 0 {
		text = ""
	}
	if o.LimitBytes != nil && *o.LimitBytes < int64(len(text)) {
		text = text[:*o.LimitBytes]
	}
	return &logLine{text: text}
}

func notStarted(p *corev1.Pod, container, reason string) error {
	return apierrors.NewBadRequest(fmt.Sprintf("container %q in pod %q is waiting to start: %s",
		container, p.Name, reason))
}

// GetObjectKind implements runtime.Object.
func (l *logLine) GetObjectKind() schema.ObjectKind { return schema.EmptyObjectKind }

// DeepCopyObject implements runtime.Object.
func (l *logLine) DeepCopyObject() runtime.Object { return l }

// InputStream implements rest.ResourceStreamer.
func (l *logLine) InputStream(
	context.Context, string, string,
) (stream io.ReadCloser, flush bool, mimeType string, err error) {
	return io.NopCloser(strings.NewReader(l.text)), false, "text/plain", l.err
}
