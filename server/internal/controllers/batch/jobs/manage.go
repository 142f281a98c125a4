package jobs

import (
	"context"
	"fmt"
	"slices"
	"strconv"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/utils/ptr"

	"github.com/kinproc/kinproc/server/internal/controllers/ownerrefs"
	"github.com/kinproc/kinproc/server/internal/controllers/pods"
)

const (
	// most is the number of pods that are deleted at a time, so that the status of a large Job is
	// written in between.
	most = 500
	// longest is the length of a generated name's prefix.
	longest = 58
	// indexVariable is the environment variable with the completion index.
	indexVariable = "JOB_COMPLETION_INDEX"
)

// manage creates and deletes pods so that as many are active as should be.
func (s *state) manage(ctx context.Context, owner ownerrefs.Owner) error {
	wanted := s.wanted()
	surplus := s.surplus(wanted)
	if len(surplus) > most {
		surplus = surplus[:most]
		s.later(pause)
	}
	if len(surplus) > 0 {
		return s.drop(ctx, owner, surplus)
	}
	missing := wanted - len(s.active)
	if onlyFailed(s.job) {
		missing -= s.terminating
	}
	if missing <= 0 {
		return nil
	}
	if !s.perIndex() {
		if wait := s.backoff.remaining(s.now); wait > 0 {
			s.later(wait)
			return nil
		}
	}
	room, wait := s.controller.pods.Room(s.job.UID, len(s.pods), missing)
	if room < missing {
		missing = room
		s.later(max(wait, pause))
	}
	var free []int
	if s.indexed() {
		free = s.free(missing)
		missing = len(free)
	}
	made, err := s.controller.pods.Create(ctx, owner, missing, func(i int) *corev1.Pod {
		if free == nil {
			return s.pod(owner, -1)
		}
		return s.pod(owner, free[i])
	})
	for range made {
		s.active = append(s.active, &corev1.Pod{}) // counts as active, and is not ready
	}
	if apierrors.HasStatusCause(err, corev1.NamespaceTerminatingCause) {
		return nil // the Job goes, too
	}
	return err
}

// drop deletes active pods that the Job does not need any more. They lose their finalizers first: a
// pod that still has one when it is deleted counts as failed.
func (s *state) drop(ctx context.Context, owner ownerrefs.Owner, unneeded []*corev1.Pod) error {
	var held []*corev1.Pod
	gone := map[*corev1.Pod]bool{}
	for _, pod := range unneeded {
		gone[pod] = true
		if s.has(pod) {
			held = append(held, pod)
		}
	}
	if err := s.releaseEach(ctx, held); err != nil {
		return err
	}
	err := s.controller.pods.Delete(ctx, owner, unneeded)
	s.terminating += len(unneeded)
	s.active = slices.DeleteFunc(s.active, func(pod *corev1.Pod) bool { return gone[pod] })
	return err
}

// wanted returns how many pods should be active.
func (s *state) wanted() int {
	parallelism := int(*s.job.Spec.Parallelism)
	switch {
	case s.suspended():
		return 0
	case s.job.Spec.Completions == nil:
		if s.succeeded > 0 {
			return len(s.active) // those that run are left alone, and no more are needed
		}
		return parallelism
	}
	left := int(*s.job.Spec.Completions) - s.succeeded - s.failedIndexes.count()
	return max(min(left, parallelism), 0)
}

// surplus returns the active pods to delete: those whose index is wrong or taken, and then as many
// as are too many.
func (s *state) surplus(wanted int) []*corev1.Pod {
	var surplus, rest []*corev1.Pod
	ranked := pods.Weakest(s.active)
	if s.indexed() {
		taken := map[int]bool{}
		for _, pod := range slices.Backward(ranked) {
			i := indexOf(pod)
			if i < 0 || i >= int(*s.job.Spec.Completions) || taken[i] {
				surplus = append(surplus, pod)
			} else {
				taken[i] = true
				rest = append(rest, pod)
			}
		}
		slices.Reverse(rest)
	} else {
		rest = ranked
	}
	if n := len(rest) - wanted; n > 0 {
		surplus = append(surplus, rest[:n]...)
	}
	return surplus
}

// free returns the completion indexes to make pods for. They are among the n lowest ones that need
// a pod: while one of these waits because it has failed, no higher one takes its turn.
func (s *state) free(n int) []int {
	var taken []int
	for _, pod := range s.pods {
		if pods.Active(pod) || onlyFailed(s.job) && pods.Terminating(pod) {
			taken = append(taken, indexOf(pod))
		}
	}
	free := []int{}
	done := append(slices.Clone(s.succeededIndexes), s.failedIndexes...)
	for i := range done.with(taken).lacking {
		if i >= int(*s.job.Spec.Completions) || len(free) >= n {
			break
		}
		if before := s.replaceable[i]; before != nil {
			counted, ignored := indexFailures(s.job, before)
			if wait := (backoff{counted + ignored, endOf(before)}).remaining(s.now); wait > 0 {
				s.later(wait)
				n--
				continue
			}
		}
		free = append(free, i)
	}
	return free
}

// pod returns a new pod, with a completion index unless that is negative.
func (s *state) pod(owner ownerrefs.Owner, index int) *corev1.Pod {
	pod := pods.FromTemplate(owner, &s.job.Spec.Template)
	pod.Finalizers = append(pod.Finalizers, batchv1.JobTrackingFinalizer)
	if index < 0 {
		return pod
	}
	number := strconv.Itoa(index)
	if pod.Annotations == nil {
		pod.Annotations = map[string]string{}
	}
	if pod.Labels == nil {
		pod.Labels = map[string]string{}
	}
	pod.Annotations[batchv1.JobCompletionIndexAnnotation] = number
	pod.Labels[batchv1.JobCompletionIndexAnnotation] = number
	if s.perIndex() {
		counted, ignored := 0, 0
		if before := s.replaceable[index]; before != nil {
			counted, ignored = indexFailures(s.job, before)
		}
		pod.Annotations[batchv1.JobIndexFailureCountAnnotation] = strconv.Itoa(counted)
		if ignored > 0 {
			pod.Annotations[ignoredAnnotation] = strconv.Itoa(ignored)
		}
	}
	for _, list := range [][]corev1.Container{pod.Spec.InitContainers, pod.Spec.Containers} {
		for i := range list {
			addIndex(&list[i])
		}
	}
	pod.Spec.Hostname = fmt.Sprintf("%s-%d", s.job.Name, index)
	suffix := "-" + number + "-"
	pod.GenerateName = s.job.Name[:min(len(s.job.Name), longest-len(suffix))] + suffix
	return pod
}

// addIndex lets a container know its completion index.
func addIndex(c *corev1.Container) {
	if slices.ContainsFunc(c.Env, func(v corev1.EnvVar) bool { return v.Name == indexVariable }) {
		return
	}
	c.Env = append(c.Env, corev1.EnvVar{
		Name: indexVariable,
		ValueFrom: &corev1.EnvVarSource{FieldRef: &corev1.ObjectFieldSelector{
			FieldPath: fmt.Sprintf("metadata.labels['%s']", batchv1.JobCompletionIndexAnnotation),
		}},
	})
}

// ready returns the number of active pods that are ready.
func (s *state) ready() *int32 {
	var n int32
	for _, pod := range s.active {
		if pods.Ready(pod) {
			n++
		}
	}
	return ptr.To(n)
}
