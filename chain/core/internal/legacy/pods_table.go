package legacy

import (
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/duration"

	"github.com/kinproc/kinproc/chain/kind"
)

const none = "<none>"

func podColumns() []kind.Column {
	return []kind.Column{
		kind.NameColumn(),
		{Name: "Ready", Description: "Ready containers, out of all containers including sidecars."},
		{Name: "Status", Description: "State of the pod, or the reason why it is not running."},
		{Name: "Restarts", Description: "Number of container restarts, and the time since the last one."},
		kind.AgeColumn(),
		{Name: "IP", Priority: 1, Description: "First address of the pod."},
		{Name: "Node", Priority: 1, Description: "Node that the pod is assigned to."},
		{
			Name:        "Nominated Node",
			Priority:    1,
			Description: "Node that the pod may be assigned to once preempted pods have left it.",
		},
		{Name: "Readiness Gates", Priority: 1, Description: "Readiness gates that are true, out of all."},
	}
}

func podRow(p *corev1.Pod) []any {
	s := summarize(p)
	restarts := fmt.Sprint(s.restarts)
	if s.restarts != 0 && !s.lastRestart.IsZero() {
		restarts = fmt.Sprintf("%d (%s ago)",
			s.restarts, duration.HumanDuration(time.Since(s.lastRestart)))
	}
	gates := none
	if n := len(p.Spec.ReadinessGates); n > 0 {
		open := 0
		for _, gate := range p.Spec.ReadinessGates {
			if c := podCondition(&p.Status, gate.ConditionType); c != nil &&
				c.Status == corev1.ConditionTrue {
				open++
			}
		}
		gates = fmt.Sprintf("%d/%d", open, n)
	}
	return []any{
		p.Name, fmt.Sprintf("%d/%d", s.ready, s.containers), s.status, restarts, kind.Age(p),
		orNone(podIP(p)), orNone(p.Spec.NodeName), orNone(p.Status.NominatedNodeName), gates,
	}
}

func orNone(s string) string {
	if s == "" {
		return none
	}
	return s
}

// podRowConditions marks finished pods as completed, for clients that display them differently.
func podRowConditions(p *corev1.Pod) []metav1.TableRowCondition {
	completed := metav1.TableRowCondition{
		Type:   metav1.RowCompleted,
		Status: metav1.ConditionTrue,
		Reason: string(p.Status.Phase),
	}
	switch p.Status.Phase {
	case corev1.PodSucceeded:
		completed.Message = "The pod has completed successfully."
	case corev1.PodFailed:
		completed.Message = "The pod failed."
	default:
		return nil
	}
	return []metav1.TableRowCondition{completed}
}

// podSummary is the state of a pod in short form.
type podSummary struct {
	status            string
	ready, containers int
	restarts          int
	lastRestart       time.Time
}

func summarize(p *corev1.Pod) podSummary {
	s := podSummary{status: string(p.Status.Phase), containers: len(p.Spec.Containers)}
	if p.Status.Reason != "" {
		s.status = p.Status.Reason
	}
	if c := podCondition(&p.Status, corev1.PodScheduled); c != nil &&
		c.Reason == corev1.PodReasonSchedulingGated {
		s.status = corev1.PodReasonSchedulingGated
	}
	sidecars := map[string]bool{}
	for _, c := range p.Spec.InitContainers {
		if c.RestartPolicy != nil && *c.RestartPolicy == corev1.ContainerRestartPolicyAlways {
			sidecars[c.Name] = true
			s.containers++
		}
	}

	initializing, kept := s.initContainers(p, sidecars)
	initialized := podCondition(&p.Status, corev1.PodInitialized)
	if !initializing || initialized != nil && initialized.Status == corev1.ConditionTrue {
		// Restarts of completed init containers no longer count.
		s.restarts, s.lastRestart = kept.restarts, kept.lastRestart
		s.mainContainers(p)
	}
	switch {
	case p.DeletionTimestamp == nil:
	case p.Status.Reason == "NodeLost":
		s.status = "Unknown"
	case !isFinished(p):
		s.status = "Terminating"
	}
	return s
}

// initContainers finds the first init container that has not completed. It returns the restarts of
// sidecars separately.
func (s *podSummary) initContainers(
	p *corev1.Pod, sidecars map[string]bool,
) (initializing bool, kept podSummary) {
	for i, c := range p.Status.InitContainerStatuses {
		s.addRestarts(c)
		if sidecars[c.Name] {
			kept.addRestarts(c)
		}
		ended, waiting := c.State.Terminated, c.State.Waiting
		switch {
		case ended != nil && ended.ExitCode == 0:
			continue
		case sidecars[c.Name] && c.Started != nil && *c.Started:
			if c.Ready {
				s.ready++
			}
			continue
		case ended != nil:
			s.status = "Init:" + endReason(ended)
		case waiting != nil && waiting.Reason != "" && waiting.Reason != "PodInitializing":
			s.status = "Init:" + waiting.Reason
		default:
			s.status = fmt.Sprintf("Init:%d/%d", i, len(p.Spec.InitContainers))
		}
		return true, kept
	}
	return false, kept
}

func (s *podSummary) mainContainers(p *corev1.Pod) {
	running := false
	// Go backwards, so that the first container with a reason determines the status.
	for i := len(p.Status.ContainerStatuses) - 1; i >= 0; i-- {
		c := p.Status.ContainerStatuses[i]
		s.addRestarts(c)
		switch {
		case c.State.Waiting != nil && c.State.Waiting.Reason != "":
			s.status = c.State.Waiting.Reason
		case c.State.Terminated != nil:
			s.status = endReason(c.State.Terminated)
		case c.Ready && c.State.Running != nil:
			running = true
			s.ready++
		}
	}
	if s.status == "Completed" && running {
		s.status = "NotReady"
		if isPodReady(p) {
			s.status = "Running"
		}
	}
}

func (s *podSummary) addRestarts(c corev1.ContainerStatus) {
	s.restarts += int(c.RestartCount)
	if last := c.LastTerminationState.Terminated; last != nil && last.FinishedAt.After(s.lastRestart) {
		s.lastRestart = last.FinishedAt.Time
	}
}

func endReason(t *corev1.ContainerStateTerminated) string {
	switch {
	case t.Reason != "":
		return t.Reason
	case t.Signal != 0:
		return fmt.Sprintf("Signal:%d", t.Signal)
	}
	return fmt.Sprintf("ExitCode:%d", t.ExitCode)
}

func isPodReady(p *corev1.Pod) bool {
	c := podCondition(&p.Status, corev1.PodReady)
	return c != nil && c.Status == corev1.ConditionTrue
}
