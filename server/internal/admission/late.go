package admission

import (
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apiserver/pkg/admission"
	"k8s.io/apiserver/pkg/admission/initializer"
	"k8s.io/apiserver/pkg/authorization/authorizer"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
)

// latePlugin is what the plugins of webhooks and policies have in common, which are made when the
// first webhook or policy exists.
type latePlugin interface {
	admission.Interface
	admission.InitializationValidator
	initializer.WantsManifestLoaders
	SetExternalKubeInformerFactory(informers.SharedInformerFactory)
	SetExternalKubeClientSet(kubernetes.Interface)
	SetDrainedNotification(<-chan struct{})
	SetUnconditionalAuthorizer(authorizer.UnconditionalAuthorizer)
	SetExcludedAdmissionResources([]schema.GroupResource)
	SetAPIServerID(string)
}

// late stands in for a plugin that is made late: initializers find out by its methods what the
// plugin needs.
type late[P latePlugin] struct {
	setters []func(P)
}

// set calls set with each plugin that is made.
func (l *late[P]) set(set func(P)) { l.setters = append(l.setters, set) }

// initialize gives a plugin what it needs.
func (l *late[P]) initialize(p P) {
	for _, set := range l.setters {
		set(p)
	}
}

// Handles implements admission.Interface. Webhooks and policies can be about all operations.
func (l *late[P]) Handles(o admission.Operation) bool {
	switch o {
	case admission.Create, admission.Update, admission.Delete, admission.Connect:
		return true
	}
	return false
}

// ValidateInitialization does nothing, because the plugin is initialized when it is made.
func (l *late[P]) ValidateInitialization() error { return nil }

// SetExternalKubeInformerFactory implements initializer.WantsExternalKubeInformerFactory.
func (l *late[P]) SetExternalKubeInformerFactory(f informers.SharedInformerFactory) {
	l.set(func(p P) { p.SetExternalKubeInformerFactory(f) })
}

// SetExternalKubeClientSet implements initializer.WantsExternalKubeClientSet.
func (l *late[P]) SetExternalKubeClientSet(c kubernetes.Interface) {
	l.set(func(p P) { p.SetExternalKubeClientSet(c) })
}

// SetUnconditionalAuthorizer implements initializer.WantsUnconditionalAuthorizer.
func (l *late[P]) SetUnconditionalAuthorizer(a authorizer.UnconditionalAuthorizer) {
	l.set(func(p P) { p.SetUnconditionalAuthorizer(a) })
}

// SetExcludedAdmissionResources implements initializer.WantsExcludedAdmissionResources.
func (l *late[P]) SetExcludedAdmissionResources(resources []schema.GroupResource) {
	l.set(func(p P) { p.SetExcludedAdmissionResources(resources) })
}

// SetAPIServerID implements initializer.WantsAPIServerID.
func (l *late[P]) SetAPIServerID(id string) { l.set(func(p P) { p.SetAPIServerID(id) }) }

// SetManifestLoaders implements initializer.WantsManifestLoaders.
func (l *late[P]) SetManifestLoaders(loaders *initializer.ManifestLoaders) {
	l.set(func(p P) { p.SetManifestLoaders(loaders) })
}
