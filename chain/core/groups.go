package core

import (
	"context"
	"strings"
	"time"

	admissionv1 "k8s.io/api/admissionregistration/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apiserver/pkg/authentication/authenticator"
	"k8s.io/apiserver/pkg/authorization/authorizer"
	"k8s.io/client-go/kubernetes"

	"github.com/kinproc/kinproc/chain/core/internal/admissionregistration"
	"github.com/kinproc/kinproc/chain/core/internal/apiserverinternal"
	"github.com/kinproc/kinproc/chain/core/internal/apps"
	"github.com/kinproc/kinproc/chain/core/internal/authentication"
	"github.com/kinproc/kinproc/chain/core/internal/authorization"
	"github.com/kinproc/kinproc/chain/core/internal/autoscaling"
	"github.com/kinproc/kinproc/chain/core/internal/batch"
	"github.com/kinproc/kinproc/chain/core/internal/certificates"
	"github.com/kinproc/kinproc/chain/core/internal/coordination"
	"github.com/kinproc/kinproc/chain/core/internal/discovery"
	"github.com/kinproc/kinproc/chain/core/internal/events"
	"github.com/kinproc/kinproc/chain/core/internal/flowcontrol"
	"github.com/kinproc/kinproc/chain/core/internal/legacy"
	"github.com/kinproc/kinproc/chain/core/internal/networking"
	"github.com/kinproc/kinproc/chain/core/internal/node"
	"github.com/kinproc/kinproc/chain/core/internal/podlifecycle"
	"github.com/kinproc/kinproc/chain/core/internal/policy"
	"github.com/kinproc/kinproc/chain/core/internal/rbac"
	"github.com/kinproc/kinproc/chain/core/internal/resource"
	"github.com/kinproc/kinproc/chain/core/internal/scheduling"
	"github.com/kinproc/kinproc/chain/core/internal/storage"
	"github.com/kinproc/kinproc/chain/core/internal/storagemigration"
	"github.com/kinproc/kinproc/chain/core/internal/streams"
	"github.com/kinproc/kinproc/chain/kind"
)

// Dependencies holds the parts of the surrounding server that some built-in kinds need.
type Dependencies struct {
	// Client is a client of the API server itself.
	Client kubernetes.Interface
	// Authenticator answers token reviews. Audiences are the default for reviews that name none.
	Authenticator authenticator.Request
	Audiences     authenticator.Audiences
	// Authorizer answers access reviews and decides which other objects the writer of an object may
	// refer to.
	Authorizer authorizer.Authorizer
	// Rules answers self subject rules reviews.
	Rules authorizer.RuleResolver
	// Roles decides whether a user may grant the rules of a role.
	Roles rbac.Policy
	// Tokens signs service account tokens.
	Tokens TokenIssuer
	// Services allocates the cluster IPs and node ports of services.
	Services legacy.ServiceAllocator
	// EventTTL is how long events are kept; 0 is for ever.
	EventTTL time.Duration
	// AllowLocalProxy lets the service proxy connect to loopback, link-local and unspecified
	// addresses.
	AllowLocalProxy bool
	// Kubelet answers for the pods on simulated nodes. It may be nil.
	Kubelet Kubelet
}

// The signer of service account tokens implements and uses these.
type (
	// TokenIssuer signs the tokens of service accounts.
	TokenIssuer = legacy.TokenIssuer
	// Token describes the service account token to sign.
	Token = legacy.Token
)

// The kubelet of simulated nodes implements and uses these.
type (
	// Kubelet answers for the pods on simulated nodes.
	Kubelet = legacy.Kubelet
	// Streams are those of a command in a container.
	Streams = streams.Streams
	// Exit is the error of a command that ended with another exit code than 0.
	Exit = streams.Exit
	// Run runs a command.
	Run = legacy.Run
	// Dial connects to a port of a pod.
	Dial = streams.Dial
)

// Groups returns the API groups of the built-in kinds. With zero dependencies the groups describe
// their kinds completely, but cannot be served.
func Groups(d Dependencies) []kind.Group {
	var bound legacy.BoundObjects
	if d.Client != nil {
		bound = d.Client.CoreV1()
	}
	return []kind.Group{
		legacy.Group(legacy.Dependencies{
			Tokens:    d.Tokens,
			Objects:   bound,
			Allocator: d.Services,
			Client:    d.Client,
			EventTTL:  d.EventTTL,
			Kubelet:   d.Kubelet,

			ProxyAllowLocalAddresses: d.AllowLocalProxy,
			Components:               []legacy.Component{{Name: "etcd-0", Check: readNewest(d.Client)}},
		}),
		admissionregistration.Group(paramAccess(d.Client, d.Authorizer)),
		apiserverinternal.Group(),
		apps.Group(),
		authentication.Group(d.Authenticator, d.Audiences),
		authorization.Group(d.Authorizer, d.Rules),
		autoscaling.Group(),
		batch.Group(),
		certificates.Group(d.Authorizer),
		coordination.Group(),
		discovery.Group(),
		events.Group(),
		flowcontrol.Group(),
		podlifecycle.Group(),
		networking.Group(),
		node.Group(),
		policy.Group(),
		resource.Group(namespaceLabels(d.Client), d.Authorizer),
		rbac.Group(d.Roles),
		scheduling.Group(),
		storage.Group(),
		storagemigration.Group(),
	}
}

// readNewest returns a health check that lists namespaces at the most recent resource version,
// which only etcd can answer.
func readNewest(client kubernetes.Interface) func(context.Context) error {
	return func(ctx context.Context) error {
		_, err := client.CoreV1().Namespaces().List(ctx, metav1.ListOptions{Limit: 1})
		return err
	}
}

// paramAccess looks up parameter kinds through the API server itself, once for each policy or
// binding that names parameters. A custom resource is therefore known as soon as it is served.
func paramAccess(
	client kubernetes.Interface, authorizer authorizer.UnconditionalAuthorizer,
) admissionregistration.ParamAccess {
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
			return schema.GroupVersionResource{},
				&meta.NoKindMatchError{GroupKind: kind.GroupKind(), SearchedVersions: []string{kind.Version}}
		},
		ValidatingParamKind: func(ctx context.Context, name string) (*admissionv1.ParamKind, error) {
			policy, err := client.AdmissionregistrationV1().ValidatingAdmissionPolicies().Get(ctx, name,
				metav1.GetOptions{})
			if err != nil {
				return nil, err
			}
			return policy.Spec.ParamKind, nil
		},
		MutatingParamKind: func(ctx context.Context, name string) (*admissionv1.ParamKind, error) {
			policy, err := client.AdmissionregistrationV1().MutatingAdmissionPolicies().Get(ctx, name,
				metav1.GetOptions{})
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
