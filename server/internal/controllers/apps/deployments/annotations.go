package deployments

import (
	"strconv"
	"strings"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// Annotations of ReplicaSets. The first is also one of Deployments.
const (
	revisionAnnotation = "deployment.kubernetes.io/revision"
	revisionHistory    = "deployment.kubernetes.io/revision-history"
	desiredReplicas    = "deployment.kubernetes.io/desired-replicas"
	maxReplicas        = "deployment.kubernetes.io/max-replicas"
)

// maxHistory is the length of the list of past revisions above which the oldest are dropped. All
// annotations of an object share 256 KiB.
const maxHistory = 2000

// own reports whether an annotation of a Deployment is none of its ReplicaSets.
func own(name string) bool {
	switch name {
	case corev1.LastAppliedConfigAnnotation, revisionAnnotation, revisionHistory, desiredReplicas,
		maxReplicas, appsv1.DeprecatedRollbackTo:
		return true
	}
	return false
}

// annotate gives a set the annotations of its Deployment and its revision. It returns whether
// anything has changed. A set that becomes the current one again gets a new revision.
func annotate(d *appsv1.Deployment, rs *appsv1.ReplicaSet, next int64, exists bool) bool {
	if rs.Annotations == nil {
		rs.Annotations = map[string]string{}
	}
	changed := false
	set := func(name, value string) {
		if had, ok := rs.Annotations[name]; !ok || had != value {
			rs.Annotations[name], changed = value, true
		}
	}
	for name, value := range d.Annotations {
		if !own(name) {
			set(name, value)
		}
	}
	before, has := rs.Annotations[revisionAnnotation]
	if revision(rs) < next {
		set(revisionAnnotation, strconv.FormatInt(next, 10))
		if exists && has {
			past := before
			if earlier := rs.Annotations[revisionHistory]; earlier != "" {
				past = earlier + "," + before
			}
			for len(past) > maxHistory {
				_, past, _ = strings.Cut(past, ",")
			}
			set(revisionHistory, past)
		}
	}
	return changed
}

// annotateReplicas notes in a set how many replicas its Deployment has. It returns whether anything
// has changed.
func annotateReplicas(d *appsv1.Deployment, rs *appsv1.ReplicaSet) bool {
	changed := false
	if rs.Annotations == nil {
		rs.Annotations = map[string]string{}
	}
	for name, n := range map[string]int32{
		desiredReplicas: *d.Spec.Replicas, maxReplicas: clamp(atMost(d)),
	} {
		if value := strconv.Itoa(int(n)); rs.Annotations[name] != value {
			rs.Annotations[name], changed = value, true
		}
	}
	return changed
}

func revision(obj metav1.Object) int64 {
	n, err := strconv.ParseInt(obj.GetAnnotations()[revisionAnnotation], 10, 64)
	if err != nil {
		return 0
	}
	return n
}

func setRevision(d *appsv1.Deployment, revision string) {
	if d.Annotations == nil {
		d.Annotations = map[string]string{}
	}
	d.Annotations[revisionAnnotation] = revision
}
