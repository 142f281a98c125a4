package simulated

import (
	"strconv"
	"strings"
	"time"

	"github.com/distribution/reference"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// The annotations of pods that steer them. Those about containers are for all regular containers,
// or for the container whose name follows after a dot, which may be an init container. A value that
// cannot be parsed counts as absent.
const (
	startDelayAnnotation = "kinproc.dev/start-delay" // a duration
	stopDelayAnnotation  = "kinproc.dev/stop-delay"  // a duration
	backOffAnnotation    = "kinproc.dev/back-off"    // the delay of the second restart
	runForAnnotation     = "kinproc.dev/run-for"     // a duration, or "forever"
	exitCodeAnnotation   = "kinproc.dev/exit-code"   // exit codes of successive runs
	crashLoopAnnotation  = "kinproc.dev/crash-loop"  // "true"
	pullErrorAnnotation  = "kinproc.dev/image-pull-error"
	// notReadyAnnotation is "true" on a pod, or on a node, that is not to be ready.
	notReadyAnnotation = "kinproc.dev/not-ready"
	// readyDelayAnnotation is how long a container runs until it is ready.
	readyDelayAnnotation = "kinproc.dev/ready-delay"
	// stoppedAnnotation is "true" on a node that is to look like one that cannot be reached.
	stoppedAnnotation = "kinproc.dev/stopped"
)

// behavior says what a container does once it has started.
type behavior struct {
	// forever is set for a container that runs until it is stopped. Otherwise it exits.
	forever bool
	runs    time.Duration
	code    int32
	output  string
}

// behavior returns what a container does when it runs for the nth time. In this order:
//
//   - The annotations decide, if there are any.
//   - A command that says how long it takes and how it ends does just that, see [understand].
//   - Init containers are done at once, and containers of Jobs and of tasks soon, see [isTask].
//   - All others run forever.
func (n *Nodes) behavior(
	p *corev1.Pod, c *corev1.Container, kind containerKind, nth int32,
) behavior {
	runs, runsSet := steer(p, runForAnnotation, c.Name, kind)
	codes, codesSet := steer(p, exitCodeAnnotation, c.Name, kind)
	crash, _ := steer(p, crashLoopAnnotation, c.Name, kind)
	runFor, err := time.ParseDuration(runs)
	code, codeErr := exitCode(codes, nth)
	switch {
	case crash == "true":
		return behavior{code: 1}
	case runsSet && runs == "forever":
		return behavior{forever: true}
	case runsSet && err == nil && runFor >= 0:
		return behavior{runs: runFor, code: code}
	case codesSet && codeErr == nil:
		return behavior{code: code}
	case kind == sidecar:
		return behavior{forever: true}
	}
	if b, ok := understand(c); ok {
		return b
	}
	switch {
	case kind == initContainer:
		return behavior{}
	case ofJob(p) && !isPause(c.Image):
		return behavior{runs: n.JobDuration}
	case kind == regular && isTask(p, c):
		return behavior{runs: max(n.JobDuration, sleeps(c))}
	}
	return behavior{forever: true}
}

// steer returns the value of an annotation for a container.
func steer(p *corev1.Pod, key, container string, kind containerKind) (string, bool) {
	if value, ok := p.Annotations[key+"."+container]; ok {
		return value, true
	}
	if kind != regular {
		return "", false
	}
	value, ok := p.Annotations[key]
	return value, ok
}

// exitCode returns the exit code of the nth run. The last of the list stands for all further runs.
// Others may have written a negative number of restarts into the status.
func exitCode(list string, nth int32) (int32, error) {
	codes := strings.Split(list, ",")
	code, err := strconv.ParseUint(strings.TrimSpace(codes[max(0, min(int(nth), len(codes)-1))]), 10, 8)
	if err != nil {
		return 0, err
	}
	return int32(code), nil
}

// duration returns the value of an annotation that is a duration, or otherwise the default.
func duration(p *corev1.Pod, key string, otherwise time.Duration) time.Duration {
	if d, err := time.ParseDuration(p.Annotations[key]); err == nil && d >= 0 {
		return d
	}
	return otherwise
}

func ofJob(p *corev1.Pod) bool {
	owner := metav1.GetControllerOf(p)
	return owner != nil && owner.Kind == "Job" && strings.HasPrefix(owner.APIVersion, "batch/")
}

// isTask reports whether a container does something and ends: one with a command, in a pod that
// nobody controls and that is not to be restarted, as helm test and kubectl run make them. What
// serves or waits goes on.
func isTask(p *corev1.Pod, c *corev1.Container) bool {
	if metav1.GetControllerOf(p) != nil || p.Spec.RestartPolicy == corev1.RestartPolicyAlways ||
		c.RestartPolicy != nil && *c.RestartPolicy == corev1.ContainerRestartPolicyAlways {
		return false
	}
	serves := len(c.Ports) > 0 || c.LivenessProbe != nil || c.ReadinessProbe != nil ||
		c.StartupProbe != nil || imageName(c.Image) == "agnhost" // of Kubernetes' tests: it serves
	return len(c.Command)+len(c.Args) > 0 && !serves && !isPause(c.Image) && !goesOn(c)
}

// isPause reports whether an image is the one of which everybody knows that it never ends.
func isPause(image string) bool { return imageName(image) == "pause" }

// imageName returns the last part of the name of an image, without its tag.
func imageName(image string) string {
	named, err := reference.ParseNormalizedNamed(image)
	if err != nil {
		return ""
	}
	path := reference.Path(named)
	return path[strings.LastIndex(path, "/")+1:]
}

// pullError returns why the image of a container cannot be pulled, if it cannot: because an
// annotation says so, because its name is invalid, because its registry is below the domain
// "invalid", which nobody can own, or because its tag is 404.
func pullError(p *corev1.Pod, c *corev1.Container, kind containerKind) (reason, message string) {
	if says, ok := steer(p, pullErrorAnnotation, c.Name, kind); ok && says != "false" {
		return "ImagePullBackOff", pullMessage(c.Image)
	}
	named, err := reference.ParseNormalizedNamed(c.Image)
	if err != nil {
		return "InvalidImageName", "Failed to apply default image tag \"" + c.Image + "\": " + err.Error()
	}
	tagged, ok := named.(reference.Tagged)
	domain, _, _ := strings.Cut(reference.Domain(named), ":")
	if ok && tagged.Tag() == "404" || domain == "invalid" || strings.HasSuffix(domain, ".invalid") ||
		strings.HasPrefix(domain, "invalid.") {
		return "ImagePullBackOff", pullMessage(c.Image)
	}
	return "", ""
}

func pullMessage(image string) string { return "Back-off pulling image \"" + image + "\"" }
