package admission

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	authenticationv1 "k8s.io/api/authentication/v1"
	certificatesv1 "k8s.io/api/certificates/v1"
	certificatesv1beta1 "k8s.io/api/certificates/v1beta1"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	resourcev1 "k8s.io/api/resource/v1"
	storagev1 "k8s.io/api/storage/v1"
	apiequality "k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/apiserver/pkg/admission"
	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/apiserver/pkg/authorization/authorizer"
	"k8s.io/component-helpers/storage/ephemeral"
)

// nodeRestriction (NodeRestriction) lets a kubelet change its own node and what runs there, and nothing else. It looks at what the Node
// authorizer, which sees no objects, has let through. Off by default.
type nodeRestriction struct {
	*admission.Handler
	reader
	asker
}

func newNodeRestriction() admission.Interface {
	return &nodeRestriction{Handler: on(admission.Create, admission.Update, admission.Delete)}
}

func (p *nodeRestriction) ValidateInitialization() error {
	return errors.Join(p.reader.ValidateInitialization(), p.asker.ValidateInitialization())
}

const nodeUserPrefix = "system:node:"

// nodeOf is the node of a kubelet. The name is empty if it is a kubelet that does not say of which node.
func nodeOf(u user.Info) (name string, ok bool) {
	name, ok = strings.CutPrefix(u.GetName(), nodeUserPrefix)
	return name, ok && slices.Contains(u.GetGroups(), user.NodesGroup)
}

func (p *nodeRestriction) Admit(ctx context.Context, a admission.Attributes, _ admission.ObjectInterfaces) error {
	node, ok := nodeOf(a.GetUserInfo())
	switch {
	case !ok:
		return nil
	case node == "":
		return forbid(a, "the user %q is a kubelet, but of no node", a.GetUserInfo().GetName())
	}
	switch a.GetResource().GroupResource() {
	case pods:
		return p.pod(ctx, a, node)
	case corev1.Resource("nodes"):
		return ownNode(a, node)
	case persistentVolumeClaims:
		return claimStatus(a, node)
	case corev1.Resource("serviceaccounts"):
		if a.GetSubresource() == "token" && a.GetOperation() == admission.Create {
			return p.token(ctx, a, node)
		}
	case coordinationv1.Resource("leases"):
		if a.GetNamespace() != corev1.NamespaceNodeLease {
			return forbid(a, "a kubelet's leases are in the namespace %s", corev1.NamespaceNodeLease)
		}
		return sameName(a, node)
	case storagev1.Resource("csinodes"):
		return sameName(a, node)
	case resourcev1.Resource("resourceslices"):
		return ownSlice(a, node)
	case signingRequests:
		return ownCertificate(a, node)
	case certificatesv1.Resource("podcertificaterequests"):
		return p.podCertificate(ctx, a, node)
	}
	return nil
}

func (p *nodeRestriction) pod(ctx context.Context, a admission.Attributes, node string) error {
	type request struct {
		operation   admission.Operation
		subresource string
	}
	switch (request{a.GetOperation(), a.GetSubresource()}) {
	case request{admission.Create, ""}:
		return p.mirror(ctx, a, node)
	case request{admission.Delete, ""}, request{admission.Create, "eviction"}:
		pod, err := p.existing(ctx, a, nameOf(a))
		if err == nil && pod.Spec.NodeName != node {
			err = forbid(a, "the pod is not on the node %q", node)
		}
		return err
	case request{admission.Update, "status"}:
		return podStatus(a, node)
	}
	return forbid(a, "a kubelet may create mirror pods, update the status of pods, delete and evict them, but nothing else")
}

// existing reads a pod. Without a name, as when a collection is deleted, there is none.
func (p *nodeRestriction) existing(ctx context.Context, a admission.Attributes, name string) (*corev1.Pod, error) {
	if name == "" {
		return nil, apierrors.NewNotFound(pods, name)
	}
	pod, err := p.client.CoreV1().Pods(a.GetNamespace()).Get(ctx, name, metav1.GetOptions{})
	return pod, foundOr(a, err)
}

// foundOr refuses a request for any error but that something is not there, which is the answer.
func foundOr(a admission.Attributes, err error) error {
	if err == nil || apierrors.IsNotFound(err) {
		return err
	}
	return admission.NewForbidden(a, err)
}

// mirror lets a kubelet create the images of its static pods. They can be given no access to other objects: the kubelet would get it too.
func (p *nodeRestriction) mirror(ctx context.Context, a admission.Attributes, node string) error {
	pod, err := cast[*corev1.Pod](a.GetObject())
	switch {
	case err != nil:
		return admission.NewForbidden(a, err)
	case !isMirror(pod):
		return forbid(a, "a kubelet may create no pods but mirror pods, with the annotation %s", corev1.MirrorPodAnnotationKey)
	case pod.Spec.NodeName != node:
		return forbid(a, "spec.nodeName must be %q", node)
	case len(pod.OwnerReferences) != 1:
		return forbid(a, "metadata.ownerReferences must be of the node %q alone", node)
	}
	owner := pod.OwnerReferences[0]
	switch {
	case owner.APIVersion != "v1" || owner.Kind != "Node" || owner.Name != node:
		return forbid(a, "metadata.ownerReferences[0] must be of the node %q", node)
	case owner.Controller == nil || !*owner.Controller:
		return forbid(a, "metadata.ownerReferences[0].controller must be true")
	case owner.BlockOwnerDeletion != nil && *owner.BlockOwnerDeletion:
		return forbid(a, "metadata.ownerReferences[0].blockOwnerDeletion must not be true")
	}
	is, err := p.client.CoreV1().Nodes().Get(ctx, node, metav1.GetOptions{})
	if err != nil {
		return foundOr(a, err)
	}
	if owner.UID != is.UID {
		return forbid(a, "metadata.ownerReferences[0].uid is not that of the node %q", node)
	}
	if what := reference(&pod.Spec); what != "" {
		return forbid(a, "a mirror pod must not refer to %s", what)
	}
	return nil
}

// reference is a kind of API objects that a pod refers to, or that nodes read for its volumes.
func reference(spec *corev1.PodSpec) string {
	switch {
	case spec.ServiceAccountName != "":
		return "a service account"
	case len(podSecrets(spec)) > 0:
		return "secrets"
	case readsConfigMaps(spec):
		return "config maps"
	case len(spec.ResourceClaims) > 0:
		return "resource claims"
	}
	for _, v := range spec.Volumes {
		switch {
		case v.ConfigMap != nil, v.Secret != nil, v.AzureFile != nil:
			return "config maps and secrets"
		case v.CSI != nil:
			return "CSI drivers"
		case v.Glusterfs != nil:
			return "endpoints"
		case v.PersistentVolumeClaim != nil, v.Ephemeral != nil:
			return "persistent volume claims"
		case v.Projected != nil:
			for _, s := range v.Projected.Sources {
				if s.DownwardAPI == nil {
					return "tokens, certificates, config maps and secrets in projected volumes"
				}
			}
		}
	}
	return ""
}

func readsConfigMaps(spec *corev1.PodSpec) (reads bool) {
	environment := func(env []corev1.EnvVar, from []corev1.EnvFromSource) {
		for _, e := range env {
			reads = reads || e.ValueFrom != nil && e.ValueFrom.ConfigMapKeyRef != nil
		}
		for _, e := range from {
			reads = reads || e.ConfigMapRef != nil
		}
	}
	containers(spec, func(c *corev1.Container) { environment(c.Env, c.EnvFrom) })
	for _, c := range spec.EphemeralContainers {
		environment(c.Env, c.EnvFrom)
	}
	return reads
}

// podStatus keeps from kubelets what makes a pod an owner of devices or a service's backend.
func podStatus(a admission.Attributes, node string) error {
	pod, err := cast[*corev1.Pod](a.GetObject())
	if err != nil {
		return admission.NewForbidden(a, err)
	}
	old, err := cast[*corev1.Pod](a.GetOldObject())
	same := apiequality.Semantic.DeepEqual
	switch {
	case err != nil:
		return admission.NewForbidden(a, err)
	case old.Spec.NodeName != node:
		return forbid(a, "the pod is not on the node %q", node)
	case !same(old.Labels, pod.Labels):
		return forbid(a, "a kubelet must not change metadata.labels")
	case !same(old.Status.ResourceClaimStatuses, pod.Status.ResourceClaimStatuses):
		return forbid(a, "a kubelet must not change status.resourceClaimStatuses")
	case !same(old.Status.ExtendedResourceClaimStatus, pod.Status.ExtendedResourceClaimStatus):
		return forbid(a, "a kubelet must not change status.extendedResourceClaimStatus")
	}
	return nil
}

// ownNode keeps a kubelet from making its node attractive to pods, or readable by way of a config source.
func ownNode(a admission.Attributes, node string) error {
	if nameOf(a) != node {
		return forbid(a, "a kubelet may change no node but its own, %q", node)
	}
	if a.GetOperation() == admission.Delete {
		return nil
	}
	n, err := cast[*corev1.Node](a.GetObject())
	if err != nil {
		return admission.NewForbidden(a, err)
	}
	old := &corev1.Node{}
	if a.GetOperation() == admission.Update {
		if old, err = cast[*corev1.Node](a.GetOldObject()); err != nil {
			return admission.NewForbidden(a, err)
		}
		if !apiequality.Semantic.DeepEqual(n.Spec.Taints, old.Spec.Taints) {
			return forbid(a, "a kubelet must not change spec.taints of its node")
		}
		if !apiequality.Semantic.DeepEqual(n.OwnerReferences, old.OwnerReferences) {
			return forbid(a, "a kubelet must not change metadata.ownerReferences of its node")
		}
	}
	if n.Spec.ConfigSource != nil && !apiequality.Semantic.DeepEqual(n.Spec.ConfigSource, old.Spec.ConfigSource) {
		return forbid(a, "a kubelet must not set spec.configSource of its node")
	}
	if changed := reservedLabels(n.Labels, old.Labels); len(changed) > 0 {
		return forbid(a, "a kubelet must not change these labels of its node: %s", strings.Join(changed, ", "))
	}
	return nil
}

// reservedLabels are the labels that differ and that kubelets must leave alone: those of node-restriction.kubernetes.io, and the
// system's but for the few that a kubelet knows best.
func reservedLabels(labels, old map[string]string) []string {
	reserved := sets.New[string]()
	look := func(labels, other map[string]string) {
		for key, value := range labels {
			if was, ok := other[key]; (!ok || was != value) && isReserved(key) {
				reserved.Insert(key)
			}
		}
	}
	look(labels, old)
	look(old, labels)
	return sets.List(reserved)
}

func isReserved(key string) bool {
	domain, _, ok := strings.Cut(key, "/")
	if !ok {
		return false
	}
	in := func(domains ...string) bool {
		return slices.ContainsFunc(domains, func(d string) bool { return domain == d || strings.HasSuffix(domain, "."+d) })
	}
	if in(corev1.LabelNamespaceNodeRestriction) {
		return true
	}
	switch key {
	case corev1.LabelHostname, corev1.LabelOSStable, corev1.LabelArchStable, "beta.kubernetes.io/os", "beta.kubernetes.io/arch",
		corev1.LabelInstanceType, corev1.LabelInstanceTypeStable,
		corev1.LabelTopologyZone, corev1.LabelTopologyRegion, corev1.LabelFailureDomainBetaZone, corev1.LabelFailureDomainBetaRegion:
		return false
	}
	return in("kubernetes.io", "k8s.io") && !in(corev1.LabelNamespaceSuffixKubelet, corev1.LabelNamespaceSuffixNode)
}

// claimStatus lets kubelets say how the growing of a volume goes.
func claimStatus(a admission.Attributes, node string) error {
	if a.GetSubresource() != "status" || a.GetOperation() != admission.Update {
		return forbid(a, "a kubelet may change nothing but the status of claims")
	}
	claim, err := cast[*corev1.PersistentVolumeClaim](a.GetObject())
	if err != nil {
		return admission.NewForbidden(a, err)
	}
	old, err := cast[*corev1.PersistentVolumeClaim](a.GetOldObject())
	if err != nil {
		return admission.NewForbidden(a, err)
	}
	rest := func(claim *corev1.PersistentVolumeClaim) *corev1.PersistentVolumeClaim {
		claim = claim.DeepCopy()
		claim.ResourceVersion, claim.ManagedFields = "", nil
		s := &claim.Status
		s.Capacity, s.Conditions, s.AllocatedResources, s.AllocatedResourceStatuses = nil, nil, nil, nil
		return claim
	}
	if !apiequality.Semantic.DeepEqual(rest(claim), rest(old)) {
		return forbid(a, "the kubelet of %q may change nothing but capacity, conditions and allocated resources in the status of a claim", node)
	}
	return nil
}

// token lets a kubelet have tokens that are bound to its pods, for those whom the pods talk to.
func (p *nodeRestriction) token(ctx context.Context, a admission.Attributes, node string) error {
	request, err := cast[*authenticationv1.TokenRequest](a.GetObject())
	if err != nil {
		return admission.NewForbidden(a, err)
	}
	to := request.Spec.BoundObjectRef
	if to == nil || to.APIVersion != "v1" || to.Kind != "Pod" || to.Name == "" || to.UID == "" {
		return forbid(a, "spec.boundObjectRef: a kubelet's tokens must be bound to a pod, with its UID")
	}
	pod, err := p.existing(ctx, a, to.Name)
	switch {
	case err != nil:
		return err
	case pod.UID != to.UID:
		return forbid(a, "spec.boundObjectRef.uid: the pod %q has another UID", to.Name)
	case pod.Spec.NodeName != node:
		return forbid(a, "spec.boundObjectRef: the pod %q is not on the node %q", to.Name, node)
	case len(request.Spec.Audiences) > 1:
		return forbid(a, "spec.audiences: a kubelet may ask for a token for one audience at most")
	}
	audience := ""
	if len(request.Spec.Audiences) == 1 {
		audience = request.Spec.Audiences[0]
	}
	if p.talksTo(ctx, pod, audience) || p.may(ctx, a, "request-serviceaccounts-token-audience", "", audience, a.GetName()) {
		return nil
	}
	return forbid(a, "spec.audiences: no volume of the pod %q has tokens for the audience %q", to.Name, audience)
}

func (p *nodeRestriction) may(ctx context.Context, a admission.Attributes, verb, group, resource, name string) bool {
	decision, _, err := p.authorizer.Authorize(ctx, authorizer.AttributesRecord{
		User: a.GetUserInfo(), Verb: verb, Namespace: a.GetNamespace(), APIGroup: group, APIVersion: "*", Resource: resource, Name: name, ResourceRequest: true,
	})
	return err == nil && decision == authorizer.DecisionAllow
}

// talksTo reports whether a volume of the pod has a token for the audience, or a CSI driver that asks for one.
func (p *nodeRestriction) talksTo(ctx context.Context, pod *corev1.Pod, audience string) bool {
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
		driver, err := p.client.StorageV1().CSIDrivers().Get(ctx, name, metav1.GetOptions{})
		if err == nil && slices.ContainsFunc(driver.Spec.TokenRequests, func(r storagev1.TokenRequest) bool { return r.Audience == audience }) {
			return true
		}
	}
	return false
}

// driver is the CSI driver behind a volume, also of those that drivers have taken over.
func (p *nodeRestriction) driver(ctx context.Context, pod *corev1.Pod, v *corev1.Volume) string {
	claim := ""
	switch {
	case v.CSI != nil:
		return v.CSI.Driver
	case v.PersistentVolumeClaim != nil:
		claim = v.PersistentVolumeClaim.ClaimName
	case v.Ephemeral != nil:
		claim = ephemeral.VolumeClaimName(pod, v)
	default:
		return migrated(v.AWSElasticBlockStore != nil, v.AzureDisk != nil, v.AzureFile != nil, v.GCEPersistentDisk != nil, v.Cinder != nil,
			v.VsphereVolume != nil, v.PortworxVolume != nil)
	}
	c, err := p.client.CoreV1().PersistentVolumeClaims(pod.Namespace).Get(ctx, claim, metav1.GetOptions{})
	if err != nil || c.Spec.VolumeName == "" {
		return ""
	}
	pv, err := p.client.CoreV1().PersistentVolumes().Get(ctx, c.Spec.VolumeName, metav1.GetOptions{})
	if err != nil {
		return ""
	}
	if pv.Spec.CSI != nil {
		return pv.Spec.CSI.Driver
	}
	s := &pv.Spec
	return migrated(s.AWSElasticBlockStore != nil, s.AzureDisk != nil, s.AzureFile != nil, s.GCEPersistentDisk != nil, s.Cinder != nil,
		s.VsphereVolume != nil, s.PortworxVolume != nil)
}

// migrated is the driver that took over from a volume plugin of Kubernetes itself.
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

// sameName is for the objects of which each node has one, with its name.
func sameName(a admission.Attributes, node string) error {
	if nameOf(a) != node {
		return forbid(a, "a kubelet may change no object but that with the name of its node, %q", node)
	}
	return nil
}

// nameOf is the name of the object, also of one to be created.
func nameOf(a admission.Attributes) string {
	if name := a.GetName(); name != "" || a.GetOperation() != admission.Create {
		return name
	}
	if m, err := meta.Accessor(a.GetObject()); err == nil {
		return m.GetName()
	}
	return ""
}

// ownSlice looks at new slices and at each of those that are deleted together. For the rest, the authorizer knows names and selectors.
func ownSlice(a admission.Attributes, node string) error {
	obj := a.GetObject()
	switch a.GetOperation() {
	case admission.Update:
		return nil
	case admission.Delete:
		obj = a.GetOldObject()
	}
	slice, err := cast[*resourcev1.ResourceSlice](obj)
	if err != nil {
		return admission.NewForbidden(a, err)
	}
	if slice.Spec.NodeName == nil || *slice.Spec.NodeName != node {
		return forbid(a, "spec.nodeName of a kubelet's resource slice must be %q", node)
	}
	return nil
}

// ownCertificate lets a kubelet have no certificate of another one.
func ownCertificate(a admission.Attributes, node string) error {
	if a.GetOperation() != admission.Create {
		return nil
	}
	request, err := cast[*certificatesv1.CertificateSigningRequest](a.GetObject())
	if err != nil {
		return admission.NewForbidden(a, err)
	}
	if s := request.Spec.SignerName; s != certificatesv1.KubeletServingSignerName && s != certificatesv1.KubeAPIServerClientKubeletSignerName {
		return nil
	}
	parsed, err := parseRequest(request.Spec.Request)
	if err != nil {
		return forbid(a, "spec.request: %w", err)
	}
	if parsed.Subject.CommonName != nodeUserPrefix+node {
		return forbid(a, "spec.request: the common name must be %s%s", nodeUserPrefix, node)
	}
	return nil
}

// podCertificate lets a kubelet have certificates for its pods. What may come true is no refusal but an error, so that the kubelet asks again.
func (p *nodeRestriction) podCertificate(ctx context.Context, a admission.Attributes, node string) error {
	if a.GetOperation() != admission.Create || a.GetSubresource() != "" {
		return forbid(a, "a kubelet may create certificate requests for pods, but nothing else")
	}
	request, err := cast[*certificatesv1beta1.PodCertificateRequest](a.GetObject())
	if err != nil {
		return admission.NewForbidden(a, err)
	}
	spec := &request.Spec
	if string(spec.NodeName) != node {
		return forbid(a, "spec.nodeName must be %q", node)
	}
	n, err := p.client.CoreV1().Nodes().Get(ctx, node, metav1.GetOptions{})
	if err != nil {
		return fmt.Errorf("spec.nodeName: %w", err)
	}
	pod, err := p.client.CoreV1().Pods(a.GetNamespace()).Get(ctx, spec.PodName, metav1.GetOptions{})
	switch {
	case err != nil:
		return fmt.Errorf("spec.podName: %w", err)
	case n.UID != spec.NodeUID:
		return errors.New("spec.nodeUID is not the node's")
	case pod.UID != spec.PodUID:
		return errors.New("spec.podUID is not the pod's")
	case pod.Spec.NodeName != node:
		return forbid(a, "spec.podName: the pod %q is not on the node %q", pod.Name, node)
	case isMirror(pod):
		return forbid(a, "spec.podName: %q is a mirror pod", pod.Name)
	case pod.Spec.ServiceAccountName != spec.ServiceAccountName:
		return forbid(a, "spec.serviceAccountName is not that of the pod %q", pod.Name)
	}
	account, err := p.client.CoreV1().ServiceAccounts(a.GetNamespace()).Get(ctx, spec.ServiceAccountName, metav1.GetOptions{})
	if err != nil {
		return fmt.Errorf("spec.serviceAccountName: %w", err)
	}
	if account.UID != spec.ServiceAccountUID {
		return errors.New("spec.serviceAccountUID is not the service account's")
	}
	const verb = "request-serviceaccounts-podcertificate-signer"
	if hasCertificate(pod, spec.SignerName) || p.may(ctx, a, verb, certificatesv1.GroupName, strings.ReplaceAll(spec.SignerName, "/", ":"), account.Name) {
		return nil
	}
	return forbid(a, "spec.signerName: no volume of the pod %q has a certificate of the signer %q", pod.Name, spec.SignerName)
}

func hasCertificate(pod *corev1.Pod, signer string) bool {
	return slices.ContainsFunc(pod.Spec.Volumes, func(v corev1.Volume) bool {
		return v.Projected != nil && slices.ContainsFunc(v.Projected.Sources, func(s corev1.VolumeProjection) bool {
			return s.PodCertificate != nil && s.PodCertificate.SignerName == signer
		})
	})
}
