package simulated

import (
	"context"
	"fmt"
	"io"
	"os"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
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
	// forwardPrefix is before the number of a port. The value is the loopback port of what stands in.
	forwardPrefix = "kinproc.dev/forward-"
)

// Kubelet answers for the containers of simulated pods, none of which runs. What it answers follows
// from annotations.
type Kubelet struct {
	Client kubernetes.Interface
	// Behaviors may be nil.
	Behaviors *Behaviors
	// LogDir is the directory of the files that annotations may name. They may name none if it is
	// empty.
	LogDir string
	// Open are the loopback ports that may stand in for ports of pods.
	Open Ports

	tables tables
}

var _ core.Kubelet = &Kubelet{}

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
	l, err := k.log(p, name, o.Previous)
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
	r.next = max(r.next, l.bounded(r.next, r.end))
	if o.LimitBytes != nil {
		r.left = *o.LimitBytes
	}
	if o.Follow && !o.Previous && l.ended.IsZero() {
		return r, k.follow(r, p)
	}
	return r, nil
}

// text returns the lines that a container logs, of which there is at least one unless it logs
// nothing.
func (k *Kubelet) text(p *corev1.Pod, name string) ([]string, error) {
	c, kind := container(p, name)
	text, ok := steer(p, logAnnotation, name, kind)
	if file, named := steer(p, logFileAnnotation, name, kind); named && !ok {
		var err error
		if text, err = k.file(file); err != nil {
			return nil, err
		}
		ok = true
	}
	if b, understood := understand(c); !ok && understood && b.output != "" {
		text, ok = b.output, true
	}
	if !ok {
		text = fmt.Sprintf("kinproc simulates node %s: container %s does not run and logs nothing",
			p.Spec.NodeName, name)
	}
	if text == "" {
		return nil, nil
	}
	return strings.Split(strings.TrimSuffix(text, "\n"), "\n"), nil
}

// maxLogFile is how much of a file a container logs.
const maxLogFile = 1 << 20

// file returns a file below the directory for them. Links that lead out of it are refused.
func (k *Kubelet) file(name string) (string, error) {
	if k.LogDir == "" {
		return "", apierrors.NewBadRequest(fmt.Sprintf("the annotation %s names the file %q: start "+
			"kinproc with --simulated-log-dir to let pods log files of a directory", logFileAnnotation,
			name))
	}
	refused := func(err error) (string, error) {
		return "", apierrors.NewBadRequest(fmt.Sprintf("the file %q of annotation %s cannot be read below "+
			"--simulated-log-dir: %s", name, logFileAnnotation, reason(err)))
	}
	dir, err := os.OpenRoot(k.LogDir)
	if err != nil {
		return refused(err)
	}
	defer dir.Close()
	f, err := dir.Open(name)
	if err != nil {
		return refused(err)
	}
	defer f.Close()
	info, err := f.Stat()
	if err != nil {
		return refused(err)
	}
	if !info.Mode().IsRegular() { // reading a pipe might never end
		return refused(fmt.Errorf("it is not a regular file"))
	}
	data, err := io.ReadAll(io.LimitReader(f, maxLogFile))
	if err != nil {
		return refused(err)
	}
	return string(data), nil
}

// reason returns an error of the file system in words.
func reason(err error) string {
	if os.IsNotExist(err) {
		return "it does not exist"
	}
	if os.IsPermission(err) {
		return "permission denied"
	}
	words := strings.Split(err.Error(), ": ")
	return words[len(words)-1]
}
