package simulated

import (
	"fmt"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/kinproc/kinproc/server/internal/controllers/pods"
)

// moment computes the status that a pod has now from the one that it had last.
type moment struct {
	nodes *Nodes
	node  *node
	pod   *corev1.Pod
	now   time.Time
	// hostIP is the address of the node.
	hostIP string
	// clock is only used by the worker that has the pod.
	clock clock

	status corev1.PodStatus
	next   int       // where the status of the next container may be
	wake   time.Time // when something changes next, zero for never
	// noAddress is set if the node has no address left for the pod.
	noAddress bool
}

func (m *moment) wakeAt(t time.Time) {
	if m.wake.IsZero() || t.Before(m.wake) {
		m.wake = t
	}
}

// advance does everything that happens to the pod until now.
func (m *moment) advance() {
	s, spec := &m.status, &m.pod.Spec
	if s.StartTime == nil {
		began := m.begins("", m.now)
		s.StartTime = &began
	}
	began := m.began("", s.StartTime.Time)
	if d := spec.ActiveDeadlineSeconds; d != nil {
		end := began.Add(time.Duration(*d) * time.Second)
		if !m.now.Before(end) {
			s.Reason, s.Message = "DeadlineExceeded",
				"Pod was active on the node longer than the specified deadline"
			m.fail()
			return
		}
		m.wakeAt(end)
	}
	m.setHost()
	starts := began.Add(duration(m.pod, startDelayAnnotation, 0))
	may := !m.now.Before(starts)
	if !may {
		m.wakeAt(starts)
	} else if !m.setAddress() {
		m.noAddress = true
		return
	}
	initialized := m.initialize(may)
	m.runRegular(initialized)
	m.runEphemeral(may)
	m.setPhase(initialized || m.wasInitialized())
	m.setConditions()
}

// stop ends all containers, because the pod is being deleted.
func (m *moment) stop() {
	s := &m.status
	if s.StartTime == nil {
		began := m.begins("", m.now)
		s.StartTime = &began
	}
	m.setHost()
	m.fail()
}

// fail ends all containers that run, as by a signal, and with them the pod.
func (m *moment) fail() {
	s, spec := &m.status, &m.pod.Spec
	m.wake = time.Time{}
	for _, list := range []struct {
		kind       containerKind
		containers []corev1.Container
		statuses   *[]corev1.ContainerStatus
	}{
		{initContainer, spec.InitContainers, &s.InitContainerStatuses},
		{regular, spec.Containers, &s.ContainerStatuses},
	} {
		for i := range list.containers {
			c := &list.containers[i]
			kind := list.kind
			if kind == initContainer {
				kind = kindOf(c)
			}
			m.kill(m.statusOf(list.statuses, c), kind, killed)
		}
	}
	s.Phase = corev1.PodFailed
	m.setConditions()
}

func (m *moment) setHost() {
	s := &m.status
	s.HostIP = m.hostIP
	s.HostIPs = []corev1.HostIP{{IP: s.HostIP}}
}

// setAddress gives the pod an address. It reports whether there is one.
func (m *moment) setAddress() bool {
	s := &m.status
	if s.PodIP != "" {
		return true
	}
	if s.PodIP = m.hostIP; !m.pod.Spec.HostNetwork {
		addr := m.nodes.address(m.node, m.pod)
		if !addr.IsValid() {
			s.PodIP = ""
			return false
		}
		s.PodIP = addr.String()
	}
	s.PodIPs = []corev1.PodIP{{IP: s.PodIP}}
	return true
}

// initialize runs the init containers, one after the other. It reports whether the regular
// containers may start.
func (m *moment) initialize(may bool) bool {
	for i := range m.pod.Spec.InitContainers {
		c := &m.pod.Spec.InitContainers[i]
		s := m.statusOf(&m.status.InitContainerStatuses, c)
		kind := kindOf(c)
		m.run(c, s, kind, may)
		if kind == sidecar {
			may = may && s.Started != nil && *s.Started
		} else {
			may = may && done(s)
		}
	}
	return may
}

// runRegular runs the regular containers. Once they have ended for good, the sidecars end.
func (m *moment) runRegular(may bool) {
	over := true
	for i := range m.pod.Spec.Containers {
		c := &m.pod.Spec.Containers[i]
		s := m.statusOf(&m.status.ContainerStatuses, c)
		m.run(c, s, regular, may)
		over = over && s.State.Terminated != nil
	}
	if !over {
		return
	}
	for i := range m.pod.Spec.InitContainers {
		if c := &m.pod.Spec.InitContainers[i]; kindOf(c) == sidecar {
			m.kill(m.statusOf(&m.status.InitContainerStatuses, c), sidecar, 0)
		}
	}
}

func (m *moment) runEphemeral(may bool) {
	for i := range m.pod.Spec.EphemeralContainers {
		c := corev1.Container(m.pod.Spec.EphemeralContainers[i].EphemeralContainerCommon)
		m.run(&c, m.statusOf(&m.status.EphemeralContainerStatuses, &c), ephemeral, may)
	}
}

// setPhase sets the phase that follows from the states of the containers.
func (m *moment) setPhase(initialized bool) {
	s := &m.status
	waiting, running, failed := 0, 0, 0
	for i := range s.ContainerStatuses {
		switch c := &s.ContainerStatuses[i]; {
		case c.State.Running != nil:
			running++
		case c.State.Terminated != nil && c.State.Terminated.ExitCode != 0:
			failed++
		case c.State.Waiting != nil && c.LastTerminationState.Terminated == nil:
			waiting++
		case c.State.Waiting != nil:
			running++ // it is going to be restarted
		}
	}
	switch {
	case !initialized && m.initFailed():
		s.Phase = corev1.PodFailed
		m.release()
	case !initialized || waiting > 0:
		s.Phase = corev1.PodPending
	case running > 0:
		s.Phase = corev1.PodRunning
	case failed > 0:
		s.Phase = corev1.PodFailed
	default:
		s.Phase = corev1.PodSucceeded
	}
}

// initFailed reports whether an init container has failed for good.
func (m *moment) initFailed() bool {
	return slices.ContainsFunc(m.status.InitContainerStatuses, func(s corev1.ContainerStatus) bool {
		return s.State.Terminated != nil && s.State.Terminated.ExitCode != 0
	})
}

// release ends the sidecars of a pod that could not be initialized.
func (m *moment) release() {
	for i := range m.pod.Spec.InitContainers {
		c := &m.pod.Spec.InitContainers[i]
		m.kill(m.statusOf(&m.status.InitContainerStatuses, c), kindOf(c), 0)
	}
}

// setConditions sets the conditions that follow from the rest of the status.
func (m *moment) setConditions() {
	s := &m.status
	s.ObservedGeneration = m.pod.Generation
	over := ""
	switch s.Phase {
	case corev1.PodSucceeded:
		over = "PodCompleted"
	case corev1.PodFailed:
		over = "PodFailed"
	}
	m.set(corev1.PodReadyToStartContainers, s.PodIP != "" && over == "", "", "")
	var incomplete, unready []string
	// Others may have written statuses of containers that do not exist.
	for i := range m.pod.Spec.InitContainers {
		c := &m.pod.Spec.InitContainers[i]
		if m.statusOf(&s.InitContainerStatuses, c).Ready {
			continue
		}
		incomplete = append(incomplete, c.Name)
		if kindOf(c) == sidecar {
			unready = append(unready, c.Name)
		}
	}
	for i := range m.pod.Spec.Containers {
		c := &m.pod.Spec.Containers[i]
		if !m.statusOf(&s.ContainerStatuses, c).Ready {
			unready = append(unready, c.Name)
		}
	}
	switch {
	case over == "PodCompleted":
		m.set(corev1.PodInitialized, true, over, "")
	case len(incomplete) > 0 && !m.wasInitialized():
		m.set(corev1.PodInitialized, false, "ContainersNotInitialized",
			fmt.Sprintf("containers with incomplete status: [%s]", strings.Join(incomplete, " ")))
	default:
		m.set(corev1.PodInitialized, true, "", "")
	}
	reason, message := over, ""
	if over == "" && len(unready) > 0 {
		reason = "ContainersNotReady"
		message = fmt.Sprintf("containers with unready status: [%s]", strings.Join(unready, " "))
	}
	m.set(corev1.ContainersReady, reason == "", reason, message)
	if closed := m.closedGates(); reason == "" && len(closed) > 0 {
		reason, message = "ReadinessGatesNotReady", strings.Join(closed, ", ")
	}
	m.set(corev1.PodReady, reason == "", reason, message)
	if pods.Condition(&m.status, corev1.PodScheduled) == nil {
		m.set(corev1.PodScheduled, true, "", "") // who created the pod has chosen the node
	}
}

// wasInitialized reports whether the regular containers have already been started.
func (m *moment) wasInitialized() bool {
	return slices.ContainsFunc(m.status.ContainerStatuses, func(s corev1.ContainerStatus) bool {
		return s.State.Waiting == nil || s.LastTerminationState.Terminated != nil
	})
}

// closedGates describes the readiness gates that keep the pod from being ready.
func (m *moment) closedGates() []string {
	var closed []string
	for _, gate := range m.pod.Spec.ReadinessGates {
		switch c := pods.Condition(&m.status, gate.ConditionType); {
		case c == nil:
			closed = append(closed,
				fmt.Sprintf("corresponding condition of pod readiness gate %q does not exist.",
					gate.ConditionType))
		case c.Status != corev1.ConditionTrue:
			closed = append(closed,
				fmt.Sprintf("the status of pod readiness gate %q is not \"True\", but %s", gate.ConditionType,
					c.Status))
		}
	}
	return closed
}

// set sets a condition. The transition time changes only with its status.
func (m *moment) set(t corev1.PodConditionType, holds bool, reason, message string) {
	c := corev1.PodCondition{
		Type: t, Status: corev1.ConditionFalse, Reason: reason, Message: message,
		ObservedGeneration: m.pod.Generation,
		LastTransitionTime: metav1.NewTime(m.now.Truncate(time.Second)),
	}
	if holds {
		c.Status = corev1.ConditionTrue
	}
	pods.SetCondition(&m.status, c)
}
