package daemonsets

import (
	"context"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	schedulingv1 "k8s.io/component-helpers/scheduling/corev1"
	"k8s.io/component-helpers/scheduling/corev1/nodeaffinity"
	"k8s.io/klog/v2"

	"github.com/kinproc/kinproc/server/internal/controllers/pods"
)

// generationLabel is the label of a pod with the generation of its template, which DaemonSets had
// before revisions.
const generationLabel = "pod-template-generation"

// tolerate adds to a pod the tolerations of all daemons: they run even where nothing else does.
func tolerate(spec *corev1.PodSpec) {
	add := func(key string, effect corev1.TaintEffect) {
		for _, t := range spec.Tolerations {
			if t.Key == key && t.Effect == effect && t.Operator == corev1.TolerationOpExists &&
				t.TolerationSeconds == nil {
				return
			}
		}
		spec.Tolerations = append(spec.Tolerations, corev1.Toleration{
			Key: key, Operator: corev1.TolerationOpExists, Effect: effect,
		})
	}
	add(corev1.TaintNodeNotReady, corev1.TaintEffectNoExecute)
	add(corev1.TaintNodeUnreachable, corev1.TaintEffectNoExecute)
	add(corev1.TaintNodeDiskPressure, corev1.TaintEffectNoSchedule)
	add(corev1.TaintNodeMemoryPressure, corev1.TaintEffectNoSchedule)
	add(corev1.TaintNodePIDPressure, corev1.TaintEffectNoSchedule)
	add(corev1.TaintNodeUnschedulable, corev1.TaintEffectNoSchedule)
	if spec.HostNetwork {
		add(corev1.TaintNodeNetworkUnavailable, corev1.TaintEffectNoSchedule)
	}
}

// fitting returns a function that tells whether a node is to have a pod of a set.
func fitting(ctx context.Context, set *appsv1.DaemonSet) func(*corev1.Node) (fit, error) {
	spec := set.Spec.Template.Spec.DeepCopy()
	tolerate(spec)
	affinity := nodeaffinity.NewRequiredNodeAffinity(spec.NodeSelector, spec.Affinity)
	log := klog.FromContext(ctx)
	untolerated := func(node *corev1.Node, effects ...corev1.TaintEffect) bool {
		_, found := schedulingv1.FindMatchingUntoleratedTaint(log, node.Spec.Taints, spec.Tolerations,
			func(t *corev1.Taint) bool {
				for _, effect := range effects {
					if t.Effect == effect {
						return true
					}
				}
				return false
			}, false)
		return found
	}
	return func(node *corev1.Node) (fit, error) {
		if spec.NodeName != "" && spec.NodeName != node.Name {
			return fit{}, nil
		}
		matches, err := affinity.Match(node)
		if err != nil || !matches {
			return fit{}, err
		}
		return fit{
			runs: !untolerated(node, corev1.TaintEffectNoExecute, corev1.TaintEffectNoSchedule),
			// A taint that only keeps new pods away does not drive out this one.
			stays: !untolerated(node, corev1.TaintEffectNoExecute),
		}, nil
	}
}

// podFor returns the pod for a node. The scheduler binds it, because the node must have the
// resources.
func (p *pass) podFor(node string) *corev1.Pod {
	pod := pods.FromTemplate(p.owner, &p.set.Spec.Template)
	tolerate(&pod.Spec)
	if pod.Labels == nil {
		pod.Labels = map[string]string{}
	}
	pod.Labels[appsv1.ControllerRevisionHashLabelKey] = p.hash
	if generation := p.set.Annotations[appsv1.DeprecatedTemplateGeneration]; generation != "" {
		pod.Labels[generationLabel] = generation
	}
	if pod.Spec.Affinity == nil {
		pod.Spec.Affinity = &corev1.Affinity{}
	}
	if pod.Spec.Affinity.NodeAffinity == nil {
		pod.Spec.Affinity.NodeAffinity = &corev1.NodeAffinity{}
	}
	// The node fits the template's own terms already.
	pod.Spec.Affinity.NodeAffinity.RequiredDuringSchedulingIgnoredDuringExecution =
		&corev1.NodeSelector{NodeSelectorTerms: []corev1.NodeSelectorTerm{{
			MatchFields: []corev1.NodeSelectorRequirement{{
				Key: metav1.ObjectNameField, Operator: corev1.NodeSelectorOpIn, Values: []string{node},
			}},
		}}}
	return pod
}

// target returns the node that a pod is on or is meant for.
func target(pod *corev1.Pod) string {
	if pod.Spec.NodeName != "" {
		return pod.Spec.NodeName
	}
	affinity := pod.Spec.Affinity
	if affinity == nil || affinity.NodeAffinity == nil ||
		affinity.NodeAffinity.RequiredDuringSchedulingIgnoredDuringExecution == nil {
		return ""
	}
	terms := affinity.NodeAffinity.RequiredDuringSchedulingIgnoredDuringExecution.NodeSelectorTerms
	for _, term := range terms {
		for _, field := range term.MatchFields {
			if field.Key == metav1.ObjectNameField && field.Operator == corev1.NodeSelectorOpIn &&
				len(field.Values) == 1 {
				return field.Values[0]
			}
		}
	}
	return ""
}
