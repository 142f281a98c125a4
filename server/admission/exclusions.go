package admission

import (
	authenticationv1 "k8s.io/api/authentication/v1"
	authorizationv1 "k8s.io/api/authorization/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apiserver/pkg/admission"
	"k8s.io/apiserver/pkg/admission/initializer"
)

// Exclusions is the admission.PluginInitializer that tells policies and webhooks what they are not asked about: the questions who
// somebody is and what somebody may do. A policy on everything would otherwise lock its owner out.
type Exclusions struct{}

// Initialize implements admission.PluginInitializer.
func (Exclusions) Initialize(plugin admission.Interface) {
	if p, ok := plugin.(initializer.WantsExcludedAdmissionResources); ok {
		p.SetExcludedAdmissionResources(excludedResources())
	}
}

func excludedResources() []schema.GroupResource {
	return []schema.GroupResource{
		{Group: authenticationv1.GroupName, Resource: "selfsubjectreviews"},
		{Group: authenticationv1.GroupName, Resource: "tokenreviews"},
		{Group: authorizationv1.GroupName, Resource: "localsubjectaccessreviews"},
		{Group: authorizationv1.GroupName, Resource: "selfsubjectaccessreviews"},
		{Group: authorizationv1.GroupName, Resource: "selfsubjectrulesreviews"},
		{Group: authorizationv1.GroupName, Resource: "subjectaccessreviews"},
	}
}
