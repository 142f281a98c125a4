package simulated

import (
	"crypto/sha256"
	"fmt"
	"slices"
	"strconv"
	"time"

	corev1 "k8s.io/api/core/v1"
)

// containerKind is what a container is for.
type containerKind int

const (
	regular containerKind = iota
	initContainer
	sidecar // an init container that goes on
	ephemeral
)

// kindOf returns the kind of an init container.
func kindOf(c *corev1.Container) containerKind {
	if c.RestartPolicy != nil && *c.RestartPolicy == corev1.ContainerRestartPolicyAlways {
		return sidecar
	}
	return initContainer
}

const (
	// killed is the exit code of a process that ignored SIGTERM, as most do that do not handle it.
	killed = 137
	// The first restart of a container is at once, the second after the back-off, which doubles
	// with each further one.
	backOff    = 10 * time.Second
	maxBackOff = 5 * time.Minute
)

// statusOf returns the status of a container. The list gets it if it is not there yet.
func (m *moment) statusOf(
	list *[]corev1.ContainerStatus, c *corev1.Container,
) *corev1.ContainerStatus {
	i := m.next // in a pod of thousands of containers, a search for each would take long
	if i >= len(*list) || (*list)[i].Name != c.Name {
		i = slices.IndexFunc(*list, func(s corev1.ContainerStatus) bool { return s.Name == c.Name })
	}
	if i < 0 {
		i = len(*list)
		*list = append(*list, corev1.ContainerStatus{
			Name: c.Name, Image: c.Image, Started: new(bool),
			State: waiting("ContainerCreating", ""),
		})
	}
	m.next = i + 1
	return &(*list)[i]
}

func waiting(reason, message string) corev1.ContainerState {
	return corev1.ContainerState{
		Waiting: &corev1.ContainerStateWaiting{Reason: reason, Message: message},
	}
}

// run does what happens to a container until now. It starts only if it may.
func (m *moment) run(c *corev1.Container, s *corev1.ContainerStatus, kind containerKind, may bool) {
	for m.step(c, s, kind, may) {
	}
	notReady, _ := steer(m.pod, notReadyAnnotation, c.Name, kind)
	started := s.State.Running != nil && kind != initContainer
	s.Started = &started
	s.Ready = started && kind != ephemeral && notReady != "true" && m.passed(c, s, kind) ||
		kind == initContainer && done(s)
	if s.State.Running != nil {
		// the resources of a pod can change while it runs
		s.AllocatedResources = c.Resources.Requests.DeepCopy()
		s.Resources = c.Resources.DeepCopy()
	}
}

// passed reports whether a container that runs has done so for long enough to be ready.
func (m *moment) passed(c *corev1.Container, s *corev1.ContainerStatus, kind containerKind) bool {
	text, _ := steer(m.pod, readyDelayAnnotation, c.Name, kind)
	delay, err := time.ParseDuration(text)
	if err != nil || delay <= 0 {
		return true
	}
	ready := m.began(c.Name, s.State.Running.StartedAt.Time).Add(delay)
	if m.now.Before(ready) {
		m.wakeAt(ready)
		return false
	}
	return true
}

// step does the next thing that happens to a container. It reports whether there was one.
func (m *moment) step(
	c *corev1.Container, s *corev1.ContainerStatus, kind containerKind, may bool,
) bool {
	switch {
	case s.State.Running != nil:
		b := m.nodes.behavior(m.pod, c, kind, s.RestartCount)
		if b.forever {
			return false
		}
		end := m.began(c.Name, s.State.Running.StartedAt.Time).Add(b.runs)
		if m.now.Before(end) {
			m.wakeAt(end)
			return false
		}
		m.end(s, b.code, end)
		return true
	case s.State.Terminated != nil:
		if !m.restarts(c, kind, s.State.Terminated.ExitCode) {
			return false
		}
		delay := m.delay(c, s, kind)
		s.LastTerminationState = s.State
		s.State = waiting("CrashLoopBackOff", fmt.Sprintf(
			"back-off %s restarting failed container=%s pod=%s_%s(%s)", delay, c.Name, m.pod.Name,
			m.pod.Namespace, m.pod.UID))
		return true
	}
	if last := s.LastTerminationState.Terminated; last != nil {
		start := m.began("end of "+c.Name, last.FinishedAt.Time).Add(m.delay(c, s, kind))
		if m.now.Before(start) {
			m.wakeAt(start)
			return false
		}
		s.RestartCount++
		m.start(c, s)
		return true
	}
	if !may {
		s.State = waiting("ContainerCreating", "")
		if kind != ephemeral && len(m.pod.Spec.InitContainers) > 0 {
			s.State.Waiting.Reason = "PodInitializing"
		}
		return false
	}
	if reason, message := pullError(m.pod, c, kind); reason != "" {
		s.State = waiting(reason, message)
		return false
	}
	m.start(c, s)
	return true
}

func (m *moment) start(c *corev1.Container, s *corev1.ContainerStatus) {
	run := string(m.pod.UID) + "/" + c.Name + "/" + strconv.Itoa(int(s.RestartCount))
	id := sha256.Sum256([]byte(run))
	s.Image, s.ImageID = c.Image, "simulated://"+c.Image
	s.ContainerID = fmt.Sprintf("simulated://%x", id)
	s.State = corev1.ContainerState{
		Running: &corev1.ContainerStateRunning{StartedAt: m.begins(c.Name, m.now)},
	}
}

// end ends a container that runs.
func (m *moment) end(s *corev1.ContainerStatus, code int32, at time.Time) {
	reason := "Completed"
	if code != 0 {
		reason = "Error"
	}
	s.State = corev1.ContainerState{Terminated: &corev1.ContainerStateTerminated{
		ExitCode: code, Reason: reason, ContainerID: s.ContainerID,
		StartedAt: s.State.Running.StartedAt, FinishedAt: m.begins("end of "+s.Name, at),
	}}
}

// kill ends a container whatever its state.
func (m *moment) kill(s *corev1.ContainerStatus, kind containerKind, code int32) {
	switch {
	case s.State.Running != nil:
		m.end(s, code, m.now)
	case s.State.Waiting != nil && s.LastTerminationState.Terminated != nil:
		s.State, s.LastTerminationState = s.LastTerminationState, corev1.ContainerState{}
	}
	s.Started, s.Ready = new(bool), kind == initContainer && done(s)
}

// done reports whether a container has ended well.
func done(s *corev1.ContainerStatus) bool {
	return s.State.Terminated != nil && s.State.Terminated.ExitCode == 0
}

// delay returns how long a container that has ended waits until it is restarted.
func (m *moment) delay(
	c *corev1.Container, s *corev1.ContainerStatus, kind containerKind,
) time.Duration {
	loops, _ := steer(m.pod, crashLoopAnnotation, c.Name, kind)
	before := s.RestartCount
	if loops == "true" {
		before++ // so that the loop shows from the start
	}
	if before == 0 {
		return 0
	}
	// A container that restarts at once again and again would never be done.
	delay := min(max(duration(m.pod, backOffAnnotation, backOff), time.Millisecond), maxBackOff)
	for range min(before-1, 16) {
		delay = min(2*delay, maxBackOff)
	}
	return delay
}

// restarts reports whether a container that ended with an exit code is restarted. The first rule of
// the container that has the code decides, then its policy, then that of the pod.
func (m *moment) restarts(c *corev1.Container, kind containerKind, code int32) bool {
	policy := m.pod.Spec.RestartPolicy
	if c.RestartPolicy != nil {
		policy = corev1.RestartPolicy(*c.RestartPolicy)
		for _, r := range c.RestartPolicyRules {
			if r.ExitCodes == nil {
				continue
			}
			listed := slices.Contains(r.ExitCodes.Values, code)
			if listed == (r.ExitCodes.Operator == corev1.ContainerRestartRuleOnExitCodesOpIn) {
				return r.Action == corev1.ContainerRestartRuleActionRestart
			}
		}
	}
	switch {
	case kind == ephemeral:
		return false
	case policy == corev1.RestartPolicyNever:
		return false
	case policy == corev1.RestartPolicyAlways && kind != initContainer:
		return true
	}
	return code != 0
}
