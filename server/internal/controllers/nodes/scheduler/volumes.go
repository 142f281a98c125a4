package scheduler

import (
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/labels"
	corelisters "k8s.io/client-go/listers/core/v1"
	storagelisters "k8s.io/client-go/listers/storage/v1"
	corev1helpers "k8s.io/component-helpers/scheduling/corev1"
	"k8s.io/component-helpers/storage/ephemeral"
	"k8s.io/component-helpers/storage/volume"
)

// volumes are the listers of everything about volumes.
type volumes struct {
	claims  corelisters.PersistentVolumeClaimLister
	volumes corelisters.PersistentVolumeLister
	classes storagelisters.StorageClassLister
}

// noProvisioner is the provisioner of classes whose volumes are made by hand.
const noProvisioner = "kubernetes.io/no-provisioner"

// podVolumes are the volumes of a pod.
type podVolumes struct {
	bound   []*corev1.PersistentVolume
	unbound []*corev1.PersistentVolumeClaim // bound once the pod has a node
	all     []*corev1.PersistentVolume      // to choose from, if there are unbound claims
	single  []string                        // the keys of the claims that are for one pod
	lost    bool                            // a claim is bound to a volume that does not exist
}

// prepareVolumes looks up the volume claims of the pod.
func (a *attempt) prepareVolumes() verdict {
	const helps = volumesChanged
	whole := func(format string, args ...any) verdict {
		return verdict{reason: fmt.Sprintf(format, args...), final: true, helps: helps}
	}
	a.prepared.bound = podVolumes{}
	for _, used := range a.claims {
		c, err := a.volumes.claims.PersistentVolumeClaims(a.Namespace).Get(used.name)
		switch {
		case apierrors.IsNotFound(err) && used.ephemeral:
			return whole("waiting for ephemeral volume controller to create the persistentvolumeclaim %q",
				used.name)
		case apierrors.IsNotFound(err):
			return whole("persistentvolumeclaim %q not found", used.name)
		case err != nil:
			return whole("%v", err)
		case c.Status.Phase == corev1.ClaimLost:
			return whole("persistentvolumeclaim %q bound to non-existent persistentvolume %q",
				c.Name, c.Spec.VolumeName)
		case c.DeletionTimestamp != nil:
			return whole("persistentvolumeclaim %q is being deleted", c.Name)
		}
		if used.ephemeral {
			if err := ephemeral.VolumeIsForPod(a.Pod, c); err != nil {
				return whole("%v", err)
			}
		}
		for _, mode := range c.Spec.AccessModes {
			if mode == corev1.ReadWriteOncePod {
				a.prepared.bound.single = append(a.prepared.bound.single, a.Namespace+"/"+c.Name)
			}
		}
		if v := a.addClaim(c); !v.ok() {
			return v
		}
	}
	if len(a.prepared.bound.unbound) > 0 {
		a.prepared.bound.all, _ = a.volumes.volumes.List(labels.Everything()) // never fails
	}
	return verdict{}
}

func (a *attempt) addClaim(c *corev1.PersistentVolumeClaim) verdict {
	bound := &a.prepared.bound
	if isBound(c) {
		v, err := a.volumes.volumes.Get(c.Spec.VolumeName)
		if err != nil {
			bound.lost = true
			return verdict{}
		}
		bound.bound = append(bound.bound, v)
		return verdict{}
	}
	late, err := volume.IsDelayBindingMode(c, a.volumes.classes)
	if err != nil || !late || c.Spec.VolumeName != "" {
		return verdict{
			reason: "pod has unbound immediate PersistentVolumeClaims", final: true,
			helps: volumesChanged,
		}
	}
	bound.unbound = append(bound.unbound, c)
	return verdict{}
}

func isBound(c *corev1.PersistentVolumeClaim) bool {
	_, completed := c.Annotations[volume.AnnBindCompleted]
	return c.Spec.VolumeName != "" && (completed || c.Status.Phase == corev1.ClaimBound)
}

func (a *attempt) filterVolumes(n *node) verdict {
	bound := &a.prepared.bound
	if slices.ContainsFunc(bound.single, func(key string) bool { return a.cluster.claims[key] > 0 }) {
		return verdict{
			reason: "node has pod using PersistentVolumeClaim with the same name and " +
				"ReadWriteOncePod access mode",
			helps: podGone | volumesChanged,
		}
	}
	final := func(reason string) verdict {
		return verdict{reason: reason, final: true, helps: nodeChanged | volumesChanged}
	}
	if bound.lost {
		return final("node(s) unavailable due to one or more pvc(s) bound to non-existent pv(s)")
	}
	for _, v := range bound.bound {
		if err := volume.CheckNodeAffinity(v, n.Labels); err != nil {
			return final("node(s) didn't match PersistentVolume's node affinity")
		}
	}
	if len(bound.unbound) > 0 {
		if _, ok := a.chooseVolumes(n); !ok {
			return final("node(s) didn't find available persistent volumes to bind")
		}
	}
	for _, v := range bound.bound {
		if !inZone(v, n) {
			return final("node(s) had no available volume zone")
		}
	}
	return verdict{}
}

// inZone reports whether a node is where the labels of a volume say that it is.
func inZone(v *corev1.PersistentVolume, n *node) bool {
	for _, keys := range [][]string{
		{corev1.LabelTopologyZone, corev1.LabelFailureDomainBetaZone},
		{corev1.LabelTopologyRegion, corev1.LabelFailureDomainBetaRegion},
	} {
		for _, key := range keys {
			places, ok := v.Labels[key]
			if !ok {
				continue
			}
			here, ok := n.Labels[keys[0]]
			if !ok {
				here, ok = n.Labels[keys[1]]
			}
			// Several zones are separated by two underscores.
			if ok && !strings.Contains("__"+places+"__", "__"+here+"__") {
				return false
			}
		}
	}
	return true
}

// binding is a claim and the volume for it, or a claim for which a volume is to be provisioned.
type binding struct {
	claim  *corev1.PersistentVolumeClaim
	volume *corev1.PersistentVolume // nil if it is to be provisioned
}

// chooseVolumes finds volumes for the claims that wait for the pod to have a node.
func (a *attempt) chooseVolumes(n *node) ([]binding, bool) {
	var chosen []binding
	taken := map[string]*corev1.PersistentVolume{}
	for _, c := range a.prepared.bound.unbound {
		selected, ok := c.Annotations[volume.AnnSelectedNode]
		if ok {
			if selected != n.name {
				return nil, false
			}
			chosen = append(chosen, binding{claim: c})
			continue
		}
		v, err := volume.FindMatchingVolume(c, a.prepared.bound.all, n.Node, taken, false, true)
		if err != nil {
			return nil, false
		}
		if v != nil {
			taken[v.Name] = v
		} else if !a.provisioned(c, n) {
			return nil, false
		}
		chosen = append(chosen, binding{c, v})
	}
	return chosen, true
}

// provisioned reports whether a volume for a claim can be provisioned on a node.
func (a *attempt) provisioned(c *corev1.PersistentVolumeClaim, n *node) bool {
	class, err := a.volumes.classes.Get(volume.GetPersistentVolumeClaimClass(c))
	return err == nil && class.Provisioner != noProvisioner && class.Provisioner != "" &&
		allowed(class, n)
}

func allowed(class *storagev1.StorageClass, n *node) bool {
	if len(class.AllowedTopologies) == 0 {
		return true
	}
	selector := &corev1.NodeSelector{}
	for _, t := range class.AllowedTopologies {
		var term corev1.NodeSelectorTerm
		for _, e := range t.MatchLabelExpressions {
			term.MatchExpressions = append(term.MatchExpressions, corev1.NodeSelectorRequirement{
				Key: e.Key, Operator: corev1.NodeSelectorOpIn, Values: e.Values,
			})
		}
		selector.NodeSelectorTerms = append(selector.NodeSelectorTerms, term)
	}
	match, err := corev1helpers.MatchNodeSelectorTerms(n.Node, selector)
	return err == nil && match
}
