package admission

import (
	"context"
	"slices"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/apiserver/pkg/admission"

	"github.com/kinproc/kinproc/chain/core/rules"
)

// defaultTolerationSeconds (DefaultTolerationSeconds) lets pods stay for five minutes on a node that is not ready or cannot be reached,
// unless they say something else.
type defaultTolerationSeconds struct{ *admission.Handler }

// tolerationSeconds is kube-apiserver's default of --default-not-ready-toleration-seconds and --default-unreachable-toleration-seconds.
const tolerationSeconds = 300

func newDefaultTolerationSeconds() admission.Interface {
	return defaultTolerationSeconds{on(admission.Create, admission.Update)}
}

func (defaultTolerationSeconds) Admit(_ context.Context, a admission.Attributes, _ admission.ObjectInterfaces) error {
	pod, ok, err := objectOf[*corev1.Pod](a, pods)
	if !ok {
		return err
	}
	for _, taint := range []string{corev1.TaintNodeNotReady, corev1.TaintNodeUnreachable} {
		tolerated := func(t corev1.Toleration) bool {
			return (t.Key == taint || t.Key == "") && (t.Effect == corev1.TaintEffectNoExecute || t.Effect == "")
		}
		if !slices.ContainsFunc(pod.Spec.Tolerations, tolerated) {
			pod.Spec.Tolerations = append(pod.Spec.Tolerations, corev1.Toleration{
				Key:               taint,
				Operator:          corev1.TolerationOpExists,
				Effect:            corev1.TaintEffectNoExecute,
				TolerationSeconds: new(int64(tolerationSeconds)),
			})
		}
	}
	return nil
}

// extendedResourceToleration (ExtendedResourceToleration) lets pods that ask for extended resources onto the nodes that are tainted with
// the names of these resources. Off by default.
type extendedResourceToleration struct{ *admission.Handler }

func newExtendedResourceToleration() admission.Interface {
	return extendedResourceToleration{on(admission.Create, admission.Update)}
}

func (extendedResourceToleration) Admit(_ context.Context, a admission.Attributes, _ admission.ObjectInterfaces) error {
	pod, ok, err := objectOf[*corev1.Pod](a, pods)
	if !ok {
		return err
	}
	resources := sets.New[string]()
	containers(&pod.Spec, func(c *corev1.Container) {
		for name := range c.Resources.Requests {
			if rules.IsExtendedResource(name) {
				resources.Insert(string(name))
			}
		}
	})
	for _, name := range sets.List(resources) {
		t := corev1.Toleration{Key: name, Operator: corev1.TolerationOpExists, Effect: corev1.TaintEffectNoSchedule}
		if i := slices.IndexFunc(pod.Spec.Tolerations, func(o corev1.Toleration) bool { return o.MatchToleration(&t) }); i >= 0 {
			pod.Spec.Tolerations[i] = t
		} else {
			pod.Spec.Tolerations = append(pod.Spec.Tolerations, t)
		}
	}
	return nil
}
