package scheduler

import (
	"fmt"
	"slices"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/component-helpers/nodedeclaredfeatures/features"
	nodefeatures "k8s.io/component-helpers/nodedeclaredfeatures/types"
	corev1helpers "k8s.io/component-helpers/scheduling/corev1"
	"k8s.io/component-helpers/scheduling/corev1/nodeaffinity"
	"k8s.io/component-helpers/storage/ephemeral"
)

// pod is a pod with what the scheduler needs to know of it, worked out once. It does not change.
type pod struct {
	*corev1.Pod
	priority         int32
	requests, scored resources
	ports            []port
	owner            types.UID // of the controller
	claims           []claim
	extended         []corev1.ResourceName // requested ones that device classes may offer
	inline           []attachable          // volumes without claims
	disks            []*corev1.Volume      // that two pods on a node may not be able to have

	affinity, antiAffinity      []term // required
	preferred, preferredAgainst []term
}

// port is a port of the host.
type port struct {
	protocol corev1.Protocol
	ip       string // empty for all addresses
	number   int32
}

func (p port) conflicts(q port) bool {
	return p.number == q.number && p.protocol == q.protocol &&
		(p.ip == q.ip || p.ip == "" || q.ip == "")
}

// claim is a volume claim that a pod uses.
type claim struct {
	name      string
	ephemeral bool // it belongs to the pod, and its name is that of the pod and the volume
}

// term is a term of the affinity of pods to pods.
type term struct {
	selector   labels.Selector
	namespaces sets.Set[string]
	// namespaceSelector selects further namespaces. It may be nil.
	namespaceSelector labels.Selector
	topologyKey       string
	weight            int64
}

func newPod(p *corev1.Pod) *pod {
	requests, scored := requestsOf(p)
	info := &pod{
		Pod: p, priority: corev1helpers.PodPriority(p), requests: requests, scored: scored,
	}
	for name, requested := range requests.others {
		if requested > 0 && isExtended(name) {
			info.extended = append(info.extended, name)
		}
	}
	slices.Sort(info.extended)
	if owner := metav1.GetControllerOfNoCopy(p); owner != nil {
		info.owner = owner.UID
	}
	addPorts := func(c *corev1.Container) {
		for _, used := range c.Ports {
			if used.HostPort > 0 {
				one := port{used.Protocol, used.HostIP, used.HostPort}
				if one.protocol == "" {
					one.protocol = corev1.ProtocolTCP
				}
				if one.ip == "0.0.0.0" || one.ip == "::" {
					one.ip = ""
				}
				info.ports = append(info.ports, one)
			}
		}
	}
	for i := range p.Spec.InitContainers {
		c := &p.Spec.InitContainers[i]
		if c.RestartPolicy != nil && *c.RestartPolicy == corev1.ContainerRestartPolicyAlways {
			addPorts(c)
		}
	}
	for i := range p.Spec.Containers {
		addPorts(&p.Spec.Containers[i])
	}
	for i := range p.Spec.Volumes {
		v := &p.Spec.Volumes[i]
		switch {
		case v.PersistentVolumeClaim != nil:
			info.claims = append(info.claims, claim{name: v.PersistentVolumeClaim.ClaimName})
		case v.Ephemeral != nil:
			info.claims = append(info.claims, claim{ephemeral.VolumeClaimName(p, v), true})
		}
		if one := inlineVolume(v); one.driver != "" {
			info.inline = append(info.inline, one)
		}
		if v.AWSElasticBlockStore != nil || v.GCEPersistentDisk != nil || v.ISCSI != nil || v.RBD != nil {
			info.disks = append(info.disks, v)
		}
	}
	if a := p.Spec.Affinity; a != nil {
		if a.PodAffinity != nil {
			info.affinity = required(p, a.PodAffinity.RequiredDuringSchedulingIgnoredDuringExecution)
			info.preferred = preferred(p, a.PodAffinity.PreferredDuringSchedulingIgnoredDuringExecution)
		}
		if a.PodAntiAffinity != nil {
			info.antiAffinity = required(p,
				a.PodAntiAffinity.RequiredDuringSchedulingIgnoredDuringExecution)
			info.preferredAgainst = preferred(p,
				a.PodAntiAffinity.PreferredDuringSchedulingIgnoredDuringExecution)
		}
	}
	return info
}

func required(p *corev1.Pod, list []corev1.PodAffinityTerm) []term {
	var terms []term
	for i := range list {
		terms = append(terms, newTerm(p, &list[i], 0))
	}
	return terms
}

func preferred(p *corev1.Pod, list []corev1.WeightedPodAffinityTerm) []term {
	var terms []term
	for i := range list {
		terms = append(terms, newTerm(p, &list[i].PodAffinityTerm, int64(list[i].Weight)))
	}
	return terms
}

func newTerm(p *corev1.Pod, t *corev1.PodAffinityTerm, weight int64) term {
	parsed := term{
		selector:    selector(t.LabelSelector),
		namespaces:  sets.New(t.Namespaces...),
		topologyKey: t.TopologyKey,
		weight:      weight,
	}
	switch {
	case t.NamespaceSelector != nil:
		parsed.namespaceSelector = selector(t.NamespaceSelector)
	case len(t.Namespaces) == 0:
		parsed.namespaces.Insert(p.Namespace)
	}
	return parsed
}

// selector returns a selector. Selectors of stored objects are valid.
func selector(s *metav1.LabelSelector) labels.Selector {
	parsed, err := metav1.LabelSelectorAsSelector(s)
	if err != nil {
		return labels.Nothing()
	}
	return parsed
}

// matches reports whether the term selects a pod. Namespaces returns the labels of a namespace.
func (t *term) matches(p *pod, namespaces func(string) labels.Set) bool {
	if !t.namespaces.Has(p.Namespace) &&
		(t.namespaceSelector == nil || !t.namespaceSelector.Matches(namespaces(p.Namespace))) {
		return false
	}
	return t.selector.Matches(labels.Set(p.Labels))
}

// selectsNamespaces reports whether the labels of namespaces matter for the affinity of the pod.
func (p *pod) selectsNamespaces() bool {
	return slices.ContainsFunc([][]term{p.affinity, p.antiAffinity, p.preferred, p.preferredAgainst},
		func(terms []term) bool {
			return slices.ContainsFunc(terms, func(t term) bool { return t.namespaceSelector != nil })
		})
}

// hasTerms reports whether the pod prefers or requires to be near other pods, or far from them.
func (p *pod) hasTerms() bool {
	return len(p.affinity)+len(p.antiAffinity)+len(p.preferred)+len(p.preferredAgainst) > 0
}

// key returns the namespace and the name.
func (p *pod) key() string { return p.Namespace + "/" + p.Name }

// wishes are what a pod demands of its node. They are worked out only for pods without a node.
type wishes struct {
	nodes          nodeaffinity.RequiredNodeAffinity
	preferredNodes *nodeaffinity.PreferredSchedulingTerms // may be nil
	// names are the nodes that the affinity restricts the pod to by name. It is nil if there is no
	// such restriction.
	names sets.Set[string]
	// spread are the topology spread constraints that must be satisfied, and spreadSoft the others.
	spread, spreadSoft []constraint
	features           []string // that nodes must declare
}

func newWishes(p *corev1.Pod) (wishes, error) {
	w := wishes{nodes: nodeaffinity.GetRequiredNodeAffinity(p)}
	if p.Spec.Affinity != nil && p.Spec.Affinity.NodeAffinity != nil {
		a := p.Spec.Affinity.NodeAffinity
		if a.RequiredDuringSchedulingIgnoredDuringExecution != nil {
			w.names = nodeNames(a.RequiredDuringSchedulingIgnoredDuringExecution.NodeSelectorTerms)
		}
		var err error
		w.preferredNodes, err = nodeaffinity.NewPreferredSchedulingTerms(
			a.PreferredDuringSchedulingIgnoredDuringExecution)
		if err != nil {
			return w, fmt.Errorf("preferred node affinity: %w", err)
		}
	}
	for _, f := range features.AllFeatures {
		if f.InferForScheduling(&nodefeatures.PodInfo{Spec: &p.Spec}) {
			w.features = append(w.features, f.Name())
		}
	}
	for i := range p.Spec.TopologySpreadConstraints {
		c := newConstraint(p, &p.Spec.TopologySpreadConstraints[i])
		if c.hard {
			w.spread = append(w.spread, c)
		} else {
			w.spreadSoft = append(w.spreadSoft, c)
		}
	}
	return w, nil
}

// nodeNames returns the names of the nodes that terms allow, or nil if a term allows nodes of any
// name. Pods of DaemonSets have such terms.
func nodeNames(terms []corev1.NodeSelectorTerm) sets.Set[string] {
	all := sets.New[string]()
	for _, t := range terms {
		var names sets.Set[string]
		for _, f := range t.MatchFields {
			if f.Key != metav1.ObjectNameField || f.Operator != corev1.NodeSelectorOpIn {
				continue
			}
			if names == nil {
				names = sets.New(f.Values...)
			} else {
				names = names.Intersection(sets.New(f.Values...))
			}
		}
		if names == nil {
			return nil
		}
		all = all.Union(names)
	}
	return all
}
