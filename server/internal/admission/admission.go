// Package admission registers the admission plugins in kube-apiserver's order. It implements the
// plugins that are not part of k8s.io/apiserver.
package admission

import (
	"io"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/apiserver/pkg/admission"
	admissionmetrics "k8s.io/apiserver/pkg/admission/metrics"
	"k8s.io/apiserver/pkg/admission/plugin/namespace/lifecycle"
	mutatingpolicy "k8s.io/apiserver/pkg/admission/plugin/policy/mutating"
	validatingpolicy "k8s.io/apiserver/pkg/admission/plugin/policy/validating"
	"k8s.io/apiserver/pkg/admission/plugin/resourcequota"
	mutatingwebhook "k8s.io/apiserver/pkg/admission/plugin/webhook/mutating"
	validatingwebhook "k8s.io/apiserver/pkg/admission/plugin/webhook/validating"
	genericoptions "k8s.io/apiserver/pkg/server/options"

	"github.com/kinproc/kinproc/server/internal/admission/noderestriction"
)

// entry describes one plugin. A plugin without a factory is registered by its own package in
// k8s.io/apiserver.
type entry struct {
	name string
	new  admission.Factory
	off  bool
}

// plain returns a factory for a plugin without configuration.
func plain(new func() admission.Interface) admission.Factory {
	return func(io.Reader) (admission.Interface, error) { return new(), nil }
}

var (
	pods                   = corev1.Resource("pods")
	persistentVolumeClaims = corev1.Resource("persistentvolumeclaims")
)

const (
	onByDefault  = false
	offByDefault = true
)

// order returns all plugins in the order in which they are called. All mutating plugins are called
// before the first validating one.
func order() []entry {
	return []entry{
		{"AlwaysAdmit", plain(newAlwaysAdmit), offByDefault},
		{"NamespaceAutoProvision", plain(newAutoProvision), offByDefault},
		{lifecycle.PluginName, nil, onByDefault},
		{"NamespaceExists", plain(newNamespaceExists), offByDefault},
		{"LimitPodHardAntiAffinityTopology", plain(newAntiAffinity), offByDefault},
		{"LimitRanger", plain(newLimitRanger), onByDefault},
		{"ServiceAccount", plain(newServiceAccount), onByDefault},
		{"NodeRestriction", plain(noderestriction.New), offByDefault},
		{"TaintNodesByCondition", plain(newTaintNodes), onByDefault},
		{"AlwaysPullImages", plain(newAlwaysPullImages), offByDefault},
		{"ImagePolicyWebhook", newImagePolicy, offByDefault},
		{"PodSecurity", newPodSecurity, onByDefault},
		{"PodNodeSelector", newPodNodeSelector, offByDefault},
		{"Priority", plain(newPriority), onByDefault},
		{"DefaultTolerationSeconds", plain(newDefaultTolerationSeconds), onByDefault},
		{"PodTolerationRestriction", newPodTolerations, offByDefault},
		{"EventRateLimit", newEventRateLimit, offByDefault},
		{"ExtendedResourceToleration", plain(newExtendedResourceToleration), offByDefault},
		{"DefaultStorageClass", plain(newDefaultStorageClass), onByDefault},
		{"StorageObjectInUseProtection", plain(newStorageProtection), onByDefault},
		{"PodGroupProtection", plain(newIdle), onByDefault},
		{"OwnerReferencesPermissionEnforcement", plain(newOwnerReferences), offByDefault},
		{"PersistentVolumeClaimResize", plain(newClaimResize), onByDefault},
		{"RuntimeClass", plain(newRuntimeClass), onByDefault},
		{"CertificateApproval", plain(newCertificateApproval), onByDefault},
		{"CertificateSigning", plain(newCertificateSigning), onByDefault},
		{"ClusterTrustBundleAttest", plain(newTrustBundleAttest), onByDefault},
		{"CertificateSubjectRestriction", plain(newCertificateSubject), onByDefault},
		{"DefaultIngressClass", plain(newDefaultIngressClass), onByDefault},
		{"DenyServiceExternalIPs", plain(newDenyExternalIPs), offByDefault},
		{"PodTopologyLabels", plain(newPodTopologyLabels), onByDefault},
		{"PodGroupWorkloadExists", plain(newIdle), onByDefault},
		{"NodeDeclaredFeatureValidator", plain(newNodeFeatures), onByDefault},
		{"JobValidation", plain(newIdle), onByDefault},
		{"PodResizeValidator", plain(newPodResize), onByDefault},
		{mutatingpolicy.PluginName, newMutatingPolicies, onByDefault},
		{mutatingwebhook.PluginName, newMutatingWebhooks, onByDefault},
		{validatingpolicy.PluginName, newValidatingPolicies, onByDefault},
		{validatingwebhook.PluginName, newValidatingWebhooks, onByDefault},
		{resourcequota.PluginName, newResourceQuota, onByDefault},
		{"AlwaysDeny", plain(newAlwaysDeny), offByDefault},
	}
}

// NewOptions returns admission options with all plugins registered.
func NewOptions() *genericoptions.AdmissionOptions {
	o := &genericoptions.AdmissionOptions{
		Plugins: admission.NewPlugins(),
		Decorators: admission.Decorators{
			admission.DecoratorFunc(admissionmetrics.WithControllerMetrics),
		},
		DefaultOffPlugins: sets.New[string](),
	}
	lifecycle.Register(o.Plugins)
	for _, p := range order() {
		if p.new != nil {
			o.Plugins.Register(p.name, p.new)
		}
		if p.off {
			o.DefaultOffPlugins.Insert(p.name)
		}
		o.RecommendedPluginOrder = append(o.RecommendedPluginOrder, p.name)
	}
	return o
}
