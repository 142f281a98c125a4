package scheduler

import (
	"fmt"
	"math"
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
	"k8s.io/utils/ptr"

	"github.com/kinproc/kinproc/chain/features"
)

// volumes are the listers of everything about volumes.
type volumes struct {
	claims      corelisters.PersistentVolumeClaimLister
	volumes     corelisters.PersistentVolumeLister
	classes     storagelisters.StorageClassLister
	drivers     storagelisters.CSIDriverLister
	nodes       storagelisters.CSINodeLister
	capacities  storagelisters.CSIStorageCapacityLister
	attachments storagelisters.VolumeAttachmentLister
}

// noProvisioner is the provisioner of classes whose volumes are made by hand.
const noProvisioner = "kubernetes.io/no-provisioner"

// podVolumes are the volumes of a pod.
type podVolumes struct {
	bound   []*corev1.PersistentVolume
	unbound []*corev1.PersistentVolumeClaim // bound once the pod has a node
	all     []*corev1.PersistentVolume      // to choose from, if there are unbound claims
	single  []string                        // the keys of the claims that are for one pod
	// attached are the volumes that VolumeAttachments attach, by node.
	attached map[string][]attachable
}

// prepareVolumes looks up the volume claims of the pod. It complains in the order in which the
// plugins of kube-scheduler do.
func (a *attempt) prepareVolumes() verdict {
	const helps = volumesChanged
	whole := func(format string, args ...any) verdict {
		return verdict{reason: fmt.Sprintf(format, args...), final: true, helps: helps}
	}
	bound := &a.prepared.bound
	*bound = podVolumes{}
	claims := make([]*corev1.PersistentVolumeClaim, len(a.claims))
	for i, used := range a.claims {
		c, err := a.volumes.claims.PersistentVolumeClaims(a.Namespace).Get(used.name)
		switch {
		case apierrors.IsNotFound(err) && used.ephemeral: // below
		case apierrors.IsNotFound(err):
			return whole("persistentvolumeclaim %q not found", used.name)
		case err != nil:
			return whole("%v", err)
		}
		claims[i] = c
	}
	for i, used := range a.claims {
		c := claims[i]
		switch {
		case c == nil:
			return whole("waiting for ephemeral volume controller to create the persistentvolumeclaim %q",
				used.name)
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
		if slices.Contains(c.Spec.AccessModes, corev1.ReadWriteOncePod) {
			bound.single = append(bound.single, a.Namespace+"/"+c.Name)
		}
	}
	for _, c := range claims {
		if !isBound(c) && !a.bindsLate(c) {
			return whole("pod has unbound immediate PersistentVolumeClaims")
		}
	}
	for _, c := range claims {
		if !isBound(c) {
			bound.unbound = append(bound.unbound, c)
			continue
		}
		v, err := a.volumes.volumes.Get(c.Spec.VolumeName)
		if err != nil {
			return whole("persistentvolume %q not found", c.Spec.VolumeName)
		}
		bound.bound = append(bound.bound, v)
	}
	if len(bound.unbound) > 0 {
		slices.SortStableFunc(bound.unbound, func(c, d *corev1.PersistentVolumeClaim) int {
			return c.Spec.Resources.Requests.Storage().Cmp(*d.Spec.Resources.Requests.Storage())
		})
		bound.all, _ = a.volumes.volumes.List(labels.Everything()) // never fails
	}
	if len(a.claims)+len(a.inline) > 0 {
		bound.attached = a.volumes.attached()
	}
	return verdict{}
}

// bindsLate reports whether a claim is bound once a pod that uses it has a node.
func (a *attempt) bindsLate(c *corev1.PersistentVolumeClaim) bool {
	late, err := volume.IsDelayBindingMode(c, a.volumes.classes)
	return err == nil && late && c.Spec.VolumeName == ""
}

func isBound(c *corev1.PersistentVolumeClaim) bool {
	_, completed := c.Annotations[volume.AnnBindCompleted]
	return c.Spec.VolumeName != "" && (completed || c.Status.Phase == corev1.ClaimBound)
}

func (a *attempt) filterVolumes(n *node) verdict {
	bound := &a.prepared.bound
	if len(a.disks) > 0 {
		for _, other := range n.pods {
			if slices.ContainsFunc(a.disks, func(v *corev1.Volume) bool {
				return slices.ContainsFunc(other.disks, func(w *corev1.Volume) bool {
					return sameDisk(v, w)
				})
			}) {
				return verdict{reason: "node(s) had no available disk", helps: podGone | nodeChanged}
			}
		}
	}
	if slices.ContainsFunc(bound.single, func(key string) bool { return a.cluster.claims[key] > 0 }) {
		return verdict{
			reason: "node(s) unavailable due to PersistentVolumeClaim with ReadWriteOncePod access mode " +
				"already in-use by another pod",
			helps: podGone | volumesChanged,
		}
	}
	if v := a.filterLimits(n); !v.ok() {
		return v
	}
	var reasons []string
	if slices.ContainsFunc(bound.bound, func(v *corev1.PersistentVolume) bool {
		return volume.CheckNodeAffinity(v, n.Labels) != nil
	}) {
		reasons = append(reasons, "node(s) didn't match PersistentVolume's node affinity")
	}
	if len(bound.unbound) > 0 {
		if _, reason := a.chooseVolumes(n); reason != "" {
			reasons = append(reasons, reason)
		}
	}
	if len(reasons) == 0 && slices.ContainsFunc(bound.bound, func(v *corev1.PersistentVolume) bool {
		return !inZone(v, n)
	}) {
		reasons = append(reasons, "node(s) had no available volume zone")
	}
	if len(reasons) == 0 {
		return verdict{}
	}
	return verdict{
		reason: reasons[0], more: reasons[1:], final: true, helps: nodeChanged | volumesChanged,
	}
}

// inZone reports whether a node is where the labels of a volume say that it is. A node that does
// not say anything may be everywhere.
func inZone(v *corev1.PersistentVolume, n *node) bool {
	somewhere, matches := false, true
	// The labels of volumes may have the old names.
	for _, l := range []struct{ label, instead string }{
		{corev1.LabelFailureDomainBetaZone, corev1.LabelTopologyZone},
		{corev1.LabelFailureDomainBetaRegion, corev1.LabelTopologyRegion},
		{label: corev1.LabelTopologyZone},
		{label: corev1.LabelTopologyRegion},
	} {
		here, ok := n.Labels[l.label]
		somewhere = somewhere || ok
		if !ok {
			here, ok = n.Labels[l.instead]
		}
		// Several zones are separated by two underscores.
		if places, limited := v.Labels[l.label]; limited &&
			(!ok || !strings.Contains("__"+places+"__", "__"+here+"__")) {
			matches = false
		}
	}
	return matches || !somewhere
}

// binding is a claim and the volume for it, or a claim for which a volume is to be provisioned.
type binding struct {
	claim  *corev1.PersistentVolumeClaim
	volume *corev1.PersistentVolume // nil if it is to be provisioned
	// capacity is where the volume is to be provisioned. It is nil if the driver does not say.
	capacity *storagev1.CSIStorageCapacity
}

const noVolumes = "node(s) didn't find available persistent volumes to bind"

// chooseVolumes finds volumes for the claims that wait for the pod to have a node, or returns why
// there are none.
func (a *attempt) chooseVolumes(n *node) (chosen []binding, reason string) {
	taken := map[string]*corev1.PersistentVolume{}
	for _, c := range a.prepared.bound.unbound {
		selected, ok := c.Annotations[volume.AnnSelectedNode]
		if ok && selected != n.name {
			return nil, noVolumes
		}
	}
	for _, c := range a.prepared.bound.unbound {
		one := binding{claim: c}
		if _, ok := c.Annotations[volume.AnnSelectedNode]; !ok {
			var err error
			one.volume, err = volume.FindMatchingVolume(c, a.prepared.bound.all, n.Node, taken, false, true)
			if err != nil {
				return nil, noVolumes
			}
		}
		if one.volume != nil {
			taken[one.volume.Name] = one.volume
		} else if one.capacity, reason = a.provisioned(c, n); reason != "" {
			return nil, reason
		}
		chosen = append(chosen, one)
	}
	return chosen, ""
}

// provisioned returns why a volume for a claim cannot be provisioned on a node, or where it can if
// the driver says so.
func (a *attempt) provisioned(
	c *corev1.PersistentVolumeClaim, n *node,
) (capacity *storagev1.CSIStorageCapacity, reason string) {
	class, err := a.volumes.classes.Get(volume.GetPersistentVolumeClaimClass(c))
	if err != nil || class.Provisioner == noProvisioner || class.Provisioner == "" ||
		!allowed(class, n) {
		return nil, noVolumes
	}
	driver, err := a.volumes.drivers.Get(class.Provisioner)
	if err != nil || !ptr.Deref(driver.Spec.StorageCapacity, false) {
		return nil, ""
	}
	wanted := c.Spec.Resources.Requests.Storage()
	all, _ := a.volumes.capacities.List(labels.Everything()) // never fails
	for _, capacity := range all {
		most := capacity.Capacity
		if capacity.MaximumVolumeSize != nil {
			most = capacity.MaximumVolumeSize
		}
		if capacity.StorageClassName == class.Name && most != nil && most.Cmp(*wanted) >= 0 &&
			capacity.NodeTopology != nil &&
			selector(capacity.NodeTopology).Matches(labels.Set(n.Labels)) {
			return capacity, ""
		}
	}
	return nil, "node(s) did not have enough free storage"
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

// volumeScores prefers nodes where the volumes that are chosen for the pod use little of what there
// is: of the capacity of existing volumes or, if there are none to be bound, of the free storage.
func (a *attempt) volumeScores(nodes []*node) []int64 {
	if len(a.prepared.bound.unbound) == 0 || !features.Enabled(features.StorageCapacityScoring) {
		return nil
	}
	scores := make([]int64, len(nodes))
	for i, n := range nodes {
		chosen, _ := a.chooseVolumes(n)
		scores[i] = scoreVolumes(chosen)
	}
	return scores
}

func scoreVolumes(chosen []binding) int64 {
	type use struct{ requested, capacity int64 }
	classes := map[string]use{}
	static := slices.ContainsFunc(chosen, func(b binding) bool { return b.volume != nil })
	for _, b := range chosen {
		class := volume.GetPersistentVolumeClaimClass(b.claim)
		u := classes[class]
		switch {
		case static && b.volume != nil:
			u.capacity += b.volume.Spec.Capacity.Storage().Value()
		case !static && b.capacity != nil && b.capacity.Capacity != nil:
			u.capacity = b.capacity.Capacity.Value() // all volumes of the class come from there
		default:
			continue
		}
		u.requested += b.claim.Spec.Resources.Requests.Storage().Value()
		classes[class] = u
	}
	if len(classes) == 0 {
		return 0
	}
	var sum int64
	for _, u := range classes {
		if u.capacity > 0 && u.requested <= u.capacity {
			sum += maxScore - u.requested*maxScore/u.capacity
		}
	}
	return int64(math.Round(float64(sum) / float64(len(classes))))
}
