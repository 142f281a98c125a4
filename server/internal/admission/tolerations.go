package admission

import (
	"context"
	"slices"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/apiserver/pkg/admission"

	"github.com/kinproc/kinproc/chain/core"
	"github.com/kinproc/kinproc/server/internal/admission/plugin"
)

// defaultTolerationSeconds (DefaultTolerationSeconds) adds tolerations to pods that let them stay
// for five minutes on a node that is not ready or unreachable, unless the pods tolerate these
// taints already.
type defaultTolerationSeconds struct {
	*admission.Handler
	seconds TolerationSeconds
}

// TolerationSeconds is how long DefaultTolerationSeconds lets pods stay on a node. It is an
// admission.PluginInitializer, which passes the values to the plugin.
type TolerationSeconds struct{ NotReady, Unreachable int64 }

// DefaultTolerationSeconds is the default of both fields of [TolerationSeconds].
const DefaultTolerationSeconds = 300

// Initialize implements admission.PluginInitializer.
func (s TolerationSeconds) Initialize(plugin admission.Interface) {
	if p, ok := plugin.(*defaultTolerationSeconds); ok {
		p.seconds = s
	}
}

func newDefaultTolerationSeconds() admission.Interface {
	return &defaultTolerationSeconds{
		admission.NewHandler(admission.Create, admission.Update),
		TolerationSeconds{DefaultTolerationSeconds, DefaultTolerationSeconds},
	}
}

func (p *defaultTolerationSeconds) Admit(
	_ context.Context, a admission.Attributes, _ admission.ObjectInterfaces,
) error {
	pod, ok, err := plugin.Object[*corev1.Pod](a, pods)
	if !ok {
		return err
	}
	for _, taint := range []struct {
		key     string
		seconds int64
	}{
		{corev1.TaintNodeNotReady, p.seconds.NotReady},
		{corev1.TaintNodeUnreachable, p.seconds.Unreachable},
	} {
		tolerated := func(t corev1.Toleration) bool {
			return (t.Key == taint.key || t.Key == "") &&
				(t.Effect == corev1.TaintEffectNoExecute || t.Effect == "")
		}
		if !slices.ContainsFunc(pod.Spec.Tolerations, tolerated) {
			pod.Spec.Tolerations = append(pod.Spec.Tolerations, corev1.Toleration{
				Key:               taint.key,
				Operator:          corev1.TolerationOpExists,
				Effect:            corev1.TaintEffectNoExecute,
				TolerationSeconds: new(taint.seconds),
			})
		}
	}
	return nil
}

// extendedResourceToleration (ExtendedResourceToleration) adds tolerations to pods that request
// extended resources, for nodes that are tainted with the names of these resources. Off by default.
type extendedResourceToleration struct{ *admission.Handler }

func newExtendedResourceToleration() admission.Interface {
	return extendedResourceToleration{admission.NewHandler(admission.Create, admission.Update)}
}

func (extendedResourceToleration) Admit(
	_ context.Context, a admission.Attributes, _ admission.ObjectInterfaces,
) error {
	pod, ok, err := plugin.Object[*corev1.Pod](a, pods)
	if !ok {
		return err
	}
	resources := sets.New[string]()
	plugin.Containers(&pod.Spec, func(c *corev1.Container) {
		for name := range c.Resources.Requests {
			if core.IsExtendedResource(name) {
				resources.Insert(string(name))
			}
		}
	})
	for _, name := range sets.List(resources) {
		t := corev1.Toleration{
			Key:      name,
			Operator: corev1.TolerationOpExists,
			Effect:   corev1.TaintEffectNoSchedule,
		}
		if i := slices.IndexFunc(pod.Spec.Tolerations, func(o corev1.Toleration) bool {
			return o.MatchToleration(&t)
		}); i >= 0 {
			pod.Spec.Tolerations[i] = t
		} else {
			pod.Spec.Tolerations = append(pod.Spec.Tolerations, t)
		}
	}
	return nil
}
