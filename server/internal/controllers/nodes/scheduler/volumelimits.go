package scheduler

import (
	"slices"

	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/component-helpers/storage/ephemeral"
	"k8s.io/component-helpers/storage/volume"
	"k8s.io/utils/ptr"

	"github.com/kinproc/kinproc/chain/features"
)

// attachable is a volume that a driver attaches to nodes.
type attachable struct {
	driver, handle string
	planned        bool // it does not exist, and the handle is the key of its claim
}

// The drivers to which old plugins have been moved.
const (
	ebsDriver       = "ebs.csi.aws.com"
	azureDiskDriver = "disk.csi.azure.com"
	cinderDriver    = "cinder.csi.openstack.org"
	gceDriver       = "pd.csi.storage.gke.io"
	portworxDriver  = "pxd.portworx.com"
)

// driverOf returns the driver of a provisioner, and whether the provisioner is one of the old
// plugins. Volumes of those without a driver are not counted.
func driverOf(provisioner string) (driver string, old bool) {
	switch provisioner {
	case "kubernetes.io/aws-ebs":
		return ebsDriver, true
	case "kubernetes.io/azure-disk":
		return azureDiskDriver, true
	case "kubernetes.io/cinder":
		return cinderDriver, true
	case "kubernetes.io/gce-pd":
		return gceDriver, true
	case "kubernetes.io/portworx-volume":
		return portworxDriver, true
	case "kubernetes.io/azure-file", "kubernetes.io/vsphere-volume":
		return "", true
	}
	return provisioner, false
}

// moved returns a volume in the form of one of the old plugins. It returns nothing if the volume
// is none.
func moved(
	ebs *corev1.AWSElasticBlockStoreVolumeSource, gce *corev1.GCEPersistentDiskVolumeSource,
	azure *corev1.AzureDiskVolumeSource, portworx *corev1.PortworxVolumeSource, cinder string,
) attachable {
	switch {
	case ebs != nil:
		return attachable{driver: ebsDriver, handle: ebs.VolumeID}
	case gce != nil:
		return attachable{driver: gceDriver, handle: gce.PDName}
	case azure != nil:
		return attachable{driver: azureDiskDriver, handle: azure.DataDiskURI}
	case portworx != nil:
		return attachable{driver: portworxDriver, handle: portworx.VolumeID}
	case cinder != "":
		return attachable{driver: cinderDriver, handle: cinder}
	}
	return attachable{}
}

// inlineVolume returns a volume that a pod names itself, in the form of one of the old plugins.
func inlineVolume(v *corev1.Volume) attachable {
	cinder := ""
	if v.Cinder != nil {
		cinder = v.Cinder.VolumeID
	}
	return moved(v.AWSElasticBlockStore, v.GCEPersistentDisk, v.AzureDisk, v.PortworxVolume, cinder)
}

// of returns the volumes of a pod. Those of old plugins are moved to their drivers on nodes that
// say which drivers they have.
func (v *volumes) of(p *pod, move bool) (list []attachable) {
	if move {
		list = append(list, p.inline...)
	}
	for _, used := range p.claims {
		c, err := v.claims.PersistentVolumeClaims(p.Namespace).Get(used.name)
		if err != nil || used.ephemeral && ephemeral.VolumeIsForPod(p.Pod, c) != nil {
			continue
		}
		if one := v.behind(c, move); one.driver != "" && one.handle != "" {
			list = append(list, one)
		}
	}
	return list
}

// behind returns the volume of a claim, or the one that is going to be made for it.
func (v *volumes) behind(c *corev1.PersistentVolumeClaim, move bool) attachable {
	if c.Spec.VolumeName != "" {
		if bound, err := v.volumes.Get(c.Spec.VolumeName); err == nil {
			s := &bound.Spec
			if s.CSI != nil {
				return attachable{driver: s.CSI.Driver, handle: s.CSI.VolumeHandle}
			}
			if !move {
				return attachable{}
			}
			cinder := ""
			if s.Cinder != nil {
				cinder = s.Cinder.VolumeID
			}
			return moved(s.AWSElasticBlockStore, s.GCEPersistentDisk, s.AzureDisk, s.PortworxVolume, cinder)
		}
	}
	class, err := v.classes.Get(volume.GetPersistentVolumeClaimClass(c))
	if err != nil {
		return attachable{}
	}
	driver, old := driverOf(class.Provisioner)
	if old && !move {
		return attachable{}
	}
	return attachable{driver: driver, handle: c.Namespace + "/" + c.Name, planned: true}
}

// attached returns the volumes that VolumeAttachments attach, by node.
func (v *volumes) attached() map[string][]attachable {
	all, _ := v.attachments.List(labels.Everything()) // never fails
	var found map[string][]attachable
	for _, attachment := range all {
		s := &attachment.Spec
		if s.Attacher == "" || s.Source.PersistentVolumeName == nil {
			continue
		}
		bound, err := v.volumes.Get(*s.Source.PersistentVolumeName)
		if err != nil || bound.Spec.CSI == nil {
			continue
		}
		if found == nil {
			found = map[string][]attachable{}
		}
		found[s.NodeName] = append(found[s.NodeName],
			attachable{driver: s.Attacher, handle: bound.Spec.CSI.VolumeHandle})
	}
	return found
}

// filterLimits checks that the node has the drivers of the volumes of the pod, if these insist, and
// that it can attach as many volumes more.
func (a *attempt) filterLimits(n *node) verdict {
	if len(a.claims)+len(a.inline) == 0 {
		return verdict{}
	}
	const helps = nodeChanged | volumesChanged | podGone
	csiNode, err := a.volumes.nodes.Get(n.name)
	if err != nil {
		csiNode = nil
	}
	list := a.volumes.of(a.pod, csiNode != nil)
	for _, v := range list {
		if !a.volumes.installed(v.driver, csiNode) {
			return verdict{reason: v.driver + " CSI driver is not installed on the node", helps: helps}
		}
	}
	limits := limitsOf(csiNode)
	if len(limits) == 0 || len(list) == 0 {
		return verdict{}
	}
	used := map[attachable]bool{}
	for _, other := range n.pods {
		for _, v := range a.volumes.of(other.pod, true) {
			used[v] = true
		}
	}
	wanted, counts := map[attachable]bool{}, map[string]int{}
	for _, v := range list {
		if !used[v] && !wanted[v] {
			wanted[v] = true
			counts[v.driver]++
		}
	}
	for _, v := range a.prepared.bound.attached[n.name] {
		used[v] = true
	}
	for v := range used {
		if counts[v.driver] > 0 { // a driver of which the pod needs nothing does not matter
			counts[v.driver]++
		}
	}
	for driver, count := range counts {
		if limit, ok := limits[driver]; ok && count > limit {
			return verdict{reason: "node(s) exceed max volume count", helps: helps}
		}
	}
	return verdict{}
}

// installed reports whether a node has a driver, or that does not matter for the driver.
func (v *volumes) installed(driver string, on *storagev1.CSINode) bool {
	if !features.Enabled(features.VolumeLimitScaling) {
		return true
	}
	d, err := v.drivers.Get(driver)
	if err != nil || !ptr.Deref(d.Spec.PreventPodSchedulingIfMissing, false) {
		return true
	}
	if on != nil {
		for i := range on.Spec.Drivers {
			if on.Spec.Drivers[i].Name == driver {
				return true
			}
		}
	}
	return false
}

// limitsOf returns how many volumes of each driver a node can attach.
func limitsOf(csiNode *storagev1.CSINode) map[string]int {
	if csiNode == nil {
		return nil
	}
	limits := map[string]int{}
	for _, d := range csiNode.Spec.Drivers {
		if d.Allocatable != nil && d.Allocatable.Count != nil {
			limits[d.Name] = int(*d.Allocatable.Count)
		}
	}
	return limits
}

// sameDisk reports whether two pods on a node cannot have two volumes, because both are the same
// disk and one of them writes to it.
func sameDisk(v, w *corev1.Volume) bool {
	switch {
	case v.GCEPersistentDisk != nil && w.GCEPersistentDisk != nil:
		a, b := v.GCEPersistentDisk, w.GCEPersistentDisk
		return a.PDName == b.PDName && !(a.ReadOnly && b.ReadOnly)
	case v.AWSElasticBlockStore != nil && w.AWSElasticBlockStore != nil:
		return v.AWSElasticBlockStore.VolumeID == w.AWSElasticBlockStore.VolumeID
	case v.ISCSI != nil && w.ISCSI != nil:
		return v.ISCSI.IQN == w.ISCSI.IQN && !(v.ISCSI.ReadOnly && w.ISCSI.ReadOnly)
	case v.RBD != nil && w.RBD != nil:
		a, b := v.RBD, w.RBD
		return a.RBDPool == b.RBDPool && a.RBDImage == b.RBDImage && !(a.ReadOnly && b.ReadOnly) &&
			slices.ContainsFunc(a.CephMonitors, func(monitor string) bool {
				return slices.Contains(b.CephMonitors, monitor)
			})
	}
	return false
}
