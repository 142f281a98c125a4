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

// Group returns the API group admissionregistration.k8s.io. params decides which parameters a user
// may refer to in policies and bindings.
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

// categories returns the categories of all kinds of the group.
func categories() []string { return []string{"api-extensions"} }

// staticSuffix is the suffix of the names of configurations that kube-apiserver loads from files
// (KEP-5793).
const staticSuffix = ".static.k8s.io"

func reserved(name string) bool { return strings.HasSuffix(name, staticSuffix) }

func manifestsEnabled() bool {
	return utilfeature.DefaultFeatureGate.Enabled(features.ManifestBasedAdmissionControlConfig)
}

// validateName rejects names reserved for objects loaded from files. An existing object with such a
// name can still be updated.
func validateName(name string, prefix bool) []string {
	problems := apivalidation.NameIsDNSSubdomain(name, prefix)
	if !prefix && reserved(name) && manifestsEnabled() {
		problems = append(problems, "names ending with "+staticSuffix+
			" are reserved for static manifest-based configurations, which are loaded from files")
	}
	return problems
}

// nameWarnings returns warnings about the name of a new object that was accepted.
func nameWarnings(name string) []string {
	if reserved(name) {
		return []string{"metadata.name: names ending with " + staticSuffix +
			" are reserved for static manifest-based configurations, which are loaded from files"}
	}
	return nil
}
