package server

import (
	"context"
	"strings"

	admissionv1 "k8s.io/api/admissionregistration/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apiserver/pkg/authentication/authenticator"
	"k8s.io/apiserver/pkg/authorization/authorizer"
	"k8s.io/client-go/kubernetes"

	"github.com/kinproc/kinproc/chain/core/admissionregistration"
	"github.com/kinproc/kinproc/chain/core/apiserverinternal"
	"github.com/kinproc/kinproc/chain/core/apps"
	"github.com/kinproc/kinproc/chain/core/authentication"
	"github.com/kinproc/kinproc/chain/core/authorization"
	"github.com/kinproc/kinproc/chain/core/autoscaling"
	"github.com/kinproc/kinproc/chain/core/batch"
	"github.com/kinproc/kinproc/chain/core/certificates"
	"github.com/kinproc/kinproc/chain/core/coordination"
	"github.com/kinproc/kinproc/chain/core/core"
	"github.com/kinproc/kinproc/chain/core/discovery"
	"github.com/kinproc/kinproc/chain/core/events"
	"github.com/kinproc/kinproc/chain/core/flowcontrol"
	"github.com/kinproc/kinproc/chain/core/kind"
	"github.com/kinproc/kinproc/chain/core/lifecycle"
	"github.com/kinproc/kinproc/chain/core/networking"
	"github.com/kinproc/kinproc/chain/core/node"
	"github.com/kinproc/kinproc/chain/core/policy"
	"github.com/kinproc/kinproc/chain/core/rbac"
	"github.com/kinproc/kinproc/chain/core/resource"
	"github.com/kinproc/kinproc/chain/core/scheduling"
	"github.com/kinproc/kinproc/chain/core/storage"
	"github.com/kinproc/kinproc/chain/core/storagemigration"
)

// dependencies are what built-in kinds need of the server around them.
type dependencies struct {
	authenticator authenticator.Request
	audiences     authenticator.Audiences
	client        kubernetes.Interface
	authorizer    authorizer.Authorizer
	rules         authorizer.RuleResolver
	allocator     core.ServiceAllocator
	policy        rbac.Policy
	tokens        core.TokenIssuer
	localProxy    bool
}

// groups are the API groups of the core-like server.
func groups(d dependencies) []kind.Group {
	return []kind.Group{
		core.Group(core.Dependencies{
			Tokens:    d.tokens,
			Objects:   d.client.CoreV1(),
			Allocator: d.allocator,
			Client:    d.client,

			ProxyAllowLocalAddresses: d.localProxy,
			Components: []core.Component{{Name: "etcd-0", Check: func(ctx context.Context) error {
				// Reading the newest version asks etcd.
				_, err := d.client.CoreV1().Namespaces().List(ctx, metav1.ListOptions{Limit: 1})
				return err
			}}},
		}),
		admissionregistration.Group(paramAccess(d.client, d.authorizer)),
		apiserverinternal.Group(),
		apps.Group(),
		authentication.Group(d.authenticator, d.audiences),
		authorization.Group(d.authorizer, d.rules),
		autoscaling.Group(),
		batch.Group(),
		certificates.Group(d.authorizer),
		coordination.Group(),
		discovery.Group(),
		events.Group(),
		flowcontrol.Group(),
		lifecycle.Group(),
		networking.Group(),
		node.Group(),
		policy.Group(),
		resource.Group(namespaceLabels(d.client), d.authorizer),
		rbac.Group(d.policy),
		scheduling.Group(),
		storage.Group(),
		storagemigration.Group(),
	}
}

// paramAccess asks the server itself, once per policy or binding that names parameters: so custom resources are known as soon as they
// are served, without a cache of what is.
func paramAccess(client kubernetes.Interface, authorizer authorizer.UnconditionalAuthorizer) admissionregistration.ParamAccess {
	policies := client.AdmissionregistrationV1()
	return admissionregistration.ParamAccess{
		Authorizer: authorizer,
		Resource: func(kind schema.GroupVersionKind) (schema.GroupVersionResource, error) {
			list, err := client.Discovery().ServerResourcesForGroupVersion(kind.GroupVersion().String())
			if err != nil {
				return schema.GroupVersionResource{}, err
			}
			for _, r := range list.APIResources {
				if r.Kind == kind.Kind && !strings.Contains(r.Name, "/") {
					return kind.GroupVersion().WithResource(r.Name), nil
				}
			}
			return schema.GroupVersionResource{}, &meta.NoKindMatchError{GroupKind: kind.GroupKind(), SearchedVersions: []string{kind.Version}}
		},
		ValidatingParamKind: func(ctx context.Context, name string) (*admissionv1.ParamKind, error) {
			policy, err := policies.ValidatingAdmissionPolicies().Get(ctx, name, metav1.GetOptions{})
			if err != nil {
				return nil, err
			}
			return policy.Spec.ParamKind, nil
		},
		MutatingParamKind: func(ctx context.Context, name string) (*admissionv1.ParamKind, error) {
			policy, err := policies.MutatingAdmissionPolicies().Get(ctx, name, metav1.GetOptions{})
			if err != nil {
				return nil, err
			}
			return policy.Spec.ParamKind, nil
		},
	}
}

func namespaceLabels(client kubernetes.Interface) resource.NamespaceLabels {
	return func(ctx context.Context, name string) (map[string]string, error) {
		namespace, err := client.CoreV1().Namespaces().Get(ctx, name, metav1.GetOptions{})
		if err != nil {
			return nil, err
		}
		return namespace.Labels, nil
	}
}
