// Package noderestriction implements the admission plugin NodeRestriction. It restricts a kubelet
// to its own node and to the objects that belong to that node. It complements the Node authorizer,
// which does not see the objects in requests.
package noderestriction

import (
	"context"
	"errors"
	"slices"
	"strings"

	certificatesv1 "k8s.io/api/certificates/v1"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	resourcev1 "k8s.io/api/resource/v1"
	storagev1 "k8s.io/api/storage/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apiserver/pkg/admission"
	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/apiserver/pkg/authorization/authorizer"

	"github.com/kinproc/kinproc/server/internal/admission/plugin"
)

type restriction struct {
	*admission.Handler
	plugin.WantsClient
	plugin.WantsAuthorizer
}

// New returns the plugin. It is off by default.
func New() admission.Interface {
	return &restriction{
		Handler: admission.NewHandler(admission.Create, admission.Update, admission.Delete),
	}
}

func (p *restriction) ValidateInitialization() error {
	return errors.Join(p.WantsClient.ValidateInitialization(),
		p.WantsAuthorizer.ValidateInitialization())
}

const nodeUserPrefix = "system:node:"

// nodeOf returns the name of the node that the kubelet u runs on. Ok is false if u is not a
// kubelet. The name is empty if the kubelet's user name contains no node.
func nodeOf(u user.Info) (name string, ok bool) {
	name, ok = strings.CutPrefix(u.GetName(), nodeUserPrefix)
	return name, ok && slices.Contains(u.GetGroups(), user.NodesGroup)
}

func (p *restriction) Admit(
	ctx context.Context, a admission.Attributes, _ admission.ObjectInterfaces,
) error {
	node, ok := nodeOf(a.GetUserInfo())
	switch {
	case !ok:
		return nil
	case node == "":
		return plugin.Forbid(a, "cannot determine the node of kubelet user %q", a.GetUserInfo().GetName())
	}
	switch a.GetResource().GroupResource() {
	case corev1.Resource("pods"):
		return p.pod(ctx, a, node)
	case corev1.Resource("nodes"):
		return ownNode(a, node)
	case corev1.Resource("persistentvolumeclaims"):
		return claimStatus(a, node)
	case corev1.Resource("serviceaccounts"):
		if a.GetSubresource() == "token" && a.GetOperation() == admission.Create {
			return p.token(ctx, a, node)
		}
	case coordinationv1.Resource("leases"):
		if a.GetNamespace() != corev1.NamespaceNodeLease {
			return plugin.Forbid(a, "a kubelet may only modify leases in the namespace %s",
				corev1.NamespaceNodeLease)
		}
		return sameName(a, node)
	case storagev1.Resource("csinodes"):
		return sameName(a, node)
	case resourcev1.Resource("resourceslices"):
		return ownSlice(a, node)
	case certificatesv1.Resource("certificatesigningrequests"):
		return ownCertificate(a, node)
	case certificatesv1.Resource("podcertificaterequests"):
		return p.podCertificate(ctx, a, node)
	}
	return nil
}

// foundOr turns any error but a 404 into a refusal. The 404 is returned as it is.
func foundOr(a admission.Attributes, err error) error {
	if err == nil || apierrors.IsNotFound(err) {
		return err
	}
	return admission.NewForbidden(a, err)
}

func (p *restriction) may(
	ctx context.Context, a admission.Attributes, verb, group, resource, name string,
) bool {
	decision, _, err := p.Authorizer.Authorize(ctx, authorizer.AttributesRecord{
		User:            a.GetUserInfo(),
		Verb:            verb,
		Namespace:       a.GetNamespace(),
		APIGroup:        group,
		APIVersion:      "*",
		Resource:        resource,
		Name:            name,
		ResourceRequest: true,
	})
	return err == nil && decision == authorizer.DecisionAllow
}
