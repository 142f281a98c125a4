package admission

import (
	"context"
	"errors"

	apiequality "k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apiserver/pkg/admission"
	"k8s.io/apiserver/pkg/authorization/authorizer"
	"k8s.io/utils/ptr"

	"github.com/kinproc/kinproc/server/internal/admission/plugin"
)

// ownerReferences (OwnerReferencesPermissionEnforcement) requires permission to delete an object in
// order to change its owner references, and permission to update an owner's finalizers in order to
// let the object block the owner's deletion. Off by default.
type ownerReferences struct {
	*admission.Handler
	plugin.WantsAuthorizer
	mapper meta.RESTMapper
}

func newOwnerReferences() admission.Interface {
	return &ownerReferences{Handler: admission.NewHandler(admission.Create, admission.Update)}
}

func (p *ownerReferences) SetRESTMapper(mapper meta.RESTMapper) { p.mapper = mapper }

func (p *ownerReferences) ValidateInitialization() error {
	if p.mapper == nil {
		return errors.New("no REST mapper was set")
	}
	return p.WantsAuthorizer.ValidateInitialization()
}

func (p *ownerReferences) Validate(
	ctx context.Context, a admission.Attributes, _ admission.ObjectInterfaces,
) error {
	owners, before := ownersOf(a.GetObject()), ownersOf(a.GetOldObject())
	// An update of a pod's status cannot change its owners, and old kubelets omit them.
	if plugin.Is(a, pods, "status") || apiequality.Semantic.DeepEqual(owners, before) {
		return nil
	}
	// Users who may create an object may set its owners.
	if a.GetOperation() == admission.Update &&
		!p.may(ctx, a, "delete", a.GetResource(), a.GetSubresource(), a.GetNamespace(), a.GetName()) {
		return plugin.Forbid(a,
			"user %q may not change metadata.ownerReferences: this requires permission to delete the object",
			a.GetUserInfo().GetName())
	}
	blocks := func(o metav1.OwnerReference) bool { return ptr.Deref(o.BlockOwnerDeletion, false) }
	blocked := map[types.UID]bool{}
	for _, o := range before {
		blocked[o.UID] = blocks(o)
	}
	for _, o := range owners {
		if !blocks(o) || blocked[o.UID] {
			continue
		}
		if err := p.mayBlock(ctx, a, o); err != nil {
			return err
		}
	}
	return nil
}

func (p *ownerReferences) mayBlock(
	ctx context.Context, a admission.Attributes, owner metav1.OwnerReference,
) error {
	gv, err := schema.ParseGroupVersion(owner.APIVersion)
	if err != nil {
		return admission.NewForbidden(a, err)
	}
	mappings, err := p.mapper.RESTMappings(gv.WithKind(owner.Kind).GroupKind(), gv.Version)
	if err != nil {
		return plugin.Forbid(a,
			"blockOwnerDeletion may not be set for an owner of an unknown kind: %w", err)
	}
	for _, m := range mappings {
		namespace := ""
		if m.Scope.Name() == meta.RESTScopeNameNamespace {
			namespace = a.GetNamespace()
		}
		if !p.may(ctx, a, "update", m.Resource, "finalizers", namespace, owner.Name) {
			return plugin.Forbid(a, "user %q may not set blockOwnerDeletion for %s %q: "+
				"this requires permission to update the owner's finalizers",
				a.GetUserInfo().GetName(), owner.Kind, owner.Name)
		}
	}
	return nil
}

func (p *ownerReferences) may(
	ctx context.Context, a admission.Attributes, verb string, resource schema.GroupVersionResource,
	subresource, namespace, name string,
) bool {
	decision, _, err := p.Authorizer.Authorize(ctx, authorizer.AttributesRecord{
		User:            a.GetUserInfo(),
		Verb:            verb,
		Namespace:       namespace,
		APIGroup:        resource.Group,
		APIVersion:      resource.Version,
		Resource:        resource.Resource,
		Subresource:     subresource,
		Name:            name,
		ResourceRequest: true,
	})
	return err == nil && decision == authorizer.DecisionAllow
}

func ownersOf(obj any) []metav1.OwnerReference {
	if o, err := meta.Accessor(obj); err == nil {
		return o.GetOwnerReferences()
	}
	return nil
}
