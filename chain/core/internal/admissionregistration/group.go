package admissionregistration

import (
	"strings"

	admissionv1 "k8s.io/api/admissionregistration/v1"
	admissionv1alpha1 "k8s.io/api/admissionregistration/v1alpha1"
	admissionv1beta1 "k8s.io/api/admissionregistration/v1beta1"
	apivalidation "k8s.io/apimachinery/pkg/api/validation"
	"k8s.io/apiserver/pkg/features"
	utilfeature "k8s.io/apiserver/pkg/util/feature"

	"github.com/kinproc/kinproc/chain/kind"
)

// Group is the API group admissionregistration.k8s.io. Params decides who may make policies read which parameters.
func Group(params ParamAccess) kind.Group {
	return kind.Group{
		Name: admissionv1.GroupName,
		Versions: []kind.GroupVersion{
			{Version: "v1", AddToScheme: admissionv1.AddToScheme},
			{Version: "v1beta1", AddToScheme: admissionv1beta1.AddToScheme, OffByDefault: true},
			{Version: "v1alpha1", AddToScheme: admissionv1alpha1.AddToScheme, OffByDefault: true},
		},
		Kinds: []kind.Declaration{
			ValidatingWebhookConfigurations(),
			MutatingWebhookConfigurations(),
			ValidatingAdmissionPolicies(params),
			ValidatingAdmissionPolicyBindings(params),
			MutatingAdmissionPolicies(params),
			MutatingAdmissionPolicyBindings(params),
		},
	}
}

// categories are those of all kinds of the group.
func categories() []string { return []string{"api-extensions"} }

// staticSuffix ends the names of configurations that kube-apiserver reads from files (KEP-5793).
const staticSuffix = ".static.k8s.io"

func reserved(name string) bool { return strings.HasSuffix(name, staticSuffix) }

func manifestsEnabled() bool {
	return utilfeature.DefaultFeatureGate.Enabled(features.ManifestBasedAdmissionControlConfig)
}

// validateName refuses the names of what is read from files. What has such a name already may keep and change it.
func validateName(name string, prefix bool) []string {
	problems := apivalidation.NameIsDNSSubdomain(name, prefix)
	if !prefix && reserved(name) && manifestsEnabled() {
		problems = append(problems, "names that end with "+staticSuffix+" are reserved for static manifest-based configurations, from files")
	}
	return problems
}

// nameWarnings are the warnings about the name of a new object that is not refused.
func nameWarnings(name string) []string {
	if reserved(name) {
		return []string{"metadata.name: names that end with " + staticSuffix + " are reserved for static manifest-based configurations, from files"}
	}
	return nil
}
