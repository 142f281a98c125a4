package noderestriction

import (
	"context"
	"slices"

	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apiserver/pkg/admission"
	"k8s.io/component-helpers/storage/ephemeral"

	"github.com/kinproc/kinproc/server/internal/admission/plugin"
)

// token allows a kubelet to request tokens that are bound to its pods, for the audiences that these
// pods use.
func (p *restriction) token(ctx context.Context, a admission.Attributes, node string) error {
	request, err := plugin.Cast[*authenticationv1.TokenRequest](a.GetObject())
	if err != nil {
		return admission.NewForbidden(a, err)
	}
	to := request.Spec.BoundObjectRef
	if to == nil || to.APIVersion != "v1" || to.Kind != "Pod" || to.Name == "" || to.UID == "" {
		return plugin.Forbid(a,
			"spec.boundObjectRef: tokens for a kubelet must be bound to a pod by name and UID")
	}
	pod, err := p.existing(ctx, a, to.Name)
	switch {
	case err != nil:
		return err
	case pod.UID != to.UID:
		return plugin.Forbid(a, "spec.boundObjectRef.uid: does not match the UID of pod %q", to.Name)
	case pod.Spec.NodeName != node:
		return plugin.Forbid(a, "spec.boundObjectRef: pod %q is not bound to node %q", to.Name, node)
	case len(request.Spec.Audiences) > 1:
		return plugin.Forbid(a, "spec.audiences: a kubelet may request at most one audience")
	}
	audience := ""
	if len(request.Spec.Audiences) == 1 {
		audience = request.Spec.Audiences[0]
	}
	if p.talksTo(ctx, pod, audience) ||
		p.may(ctx, a, "request-serviceaccounts-token-audience", "", audience, a.GetName()) {
		return nil
	}
	return plugin.Forbid(a, "spec.audiences: no volume of pod %q uses a token for audience %q",
		to.Name, audience)
}

// talksTo reports whether a volume of the pod has a token for the audience, or a CSI driver that
// requests one.
func (p *restriction) talksTo(ctx context.Context, pod *corev1.Pod, audience string) bool {
	for i := range pod.Spec.Volumes {
		v := &pod.Spec.Volumes[i]
		if v.Projected != nil {
			if slices.ContainsFunc(v.Projected.Sources, func(s corev1.VolumeProjection) bool {
				return s.ServiceAccountToken != nil && s.ServiceAccountToken.Audience == audience
			}) {
				return true
			}
			continue
		}
		name := p.driver(ctx, pod, v)
		if name == "" {
			continue
		}
		driver, err := p.Client.StorageV1().CSIDrivers().Get(ctx, name, metav1.GetOptions{})
		if err == nil && slices.ContainsFunc(driver.Spec.TokenRequests,
			func(r storagev1.TokenRequest) bool { return r.Audience == audience }) {
			return true
		}
	}
	return false
}

// driver returns the name of the CSI driver behind a volume, including in-tree volumes that have
// been migrated to CSI.
func (p *restriction) driver(ctx context.Context, pod *corev1.Pod, v *corev1.Volume) string {
	claim := ""
	switch {
	case v.CSI != nil:
		return v.CSI.Driver
	case v.PersistentVolumeClaim != nil:
		claim = v.PersistentVolumeClaim.ClaimName
	case v.Ephemeral != nil:
		claim = ephemeral.VolumeClaimName(pod, v)
	default:
		return migrated(v.AWSElasticBlockStore != nil, v.AzureDisk != nil, v.AzureFile != nil,
			v.GCEPersistentDisk != nil, v.Cinder != nil, v.VsphereVolume != nil, v.PortworxVolume != nil)
	}
	c, err := p.Client.CoreV1().PersistentVolumeClaims(pod.Namespace).Get(ctx, claim,
		metav1.GetOptions{})
	if err != nil || c.Spec.VolumeName == "" {
		return ""
	}
	pv, err := p.Client.CoreV1().PersistentVolumes().Get(ctx, c.Spec.VolumeName, metav1.GetOptions{})
	if err != nil {
		return ""
	}
	if pv.Spec.CSI != nil {
		return pv.Spec.CSI.Driver
	}
	s := &pv.Spec
	return migrated(s.AWSElasticBlockStore != nil, s.AzureDisk != nil, s.AzureFile != nil,
		s.GCEPersistentDisk != nil, s.Cinder != nil, s.VsphereVolume != nil, s.PortworxVolume != nil)
}

// migrated returns the CSI driver that replaced an in-tree volume plugin.
func migrated(ebs, azureDisk, azureFile, gce, cinder, vsphere, portworx bool) string {
	switch {
	case ebs:
		return "ebs.csi.aws.com"
	case azureDisk:
		return "disk.csi.azure.com"
	case azureFile:
		return "file.csi.azure.com"
	case gce:
		return "pd.csi.storage.gke.io"
	case cinder:
		return "cinder.csi.openstack.org"
	case vsphere:
		return "csi.vsphere.vmware.com"
	case portworx:
		return "pxd.portworx.com"
	}
	return ""
}
