package legacy

import (
	"time"

	corev1 "k8s.io/api/core/v1"
	eventsv1 "k8s.io/api/events/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes"

	"github.com/kinproc/kinproc/chain/kind"
)

// Dependencies are what some kinds of the group need from the server.
type Dependencies struct {
	// Tokens signs service account tokens. If it is nil, token requests are refused.
	Tokens TokenIssuer
	// Objects reads the objects that tokens are bound to. If it is nil, token requests are refused.
	Objects BoundObjects
	// Allocator allocates cluster IPs and node ports. If it is nil, services cannot be created or
	// updated.
	Allocator ServiceAllocator
	// EventTTL is how long events are kept; 0 is for ever.
	EventTTL time.Duration
	// Components are the components that componentstatuses lists.
	Components []Component
	// Client is a client of this server. If it is nil, services/proxy is refused and evictions
	// ignore disruption budgets.
	Client kubernetes.Interface
	// ProxyAllowLocalAddresses allows services/proxy to connect to loopback, link-local, multicast
	// and unspecified addresses.
	ProxyAllowLocalAddresses bool
	// Kubelet answers for the pods on simulated nodes. If it is nil, requests for them are refused.
	Kubelet Kubelet
}

// Group returns the core group, whose name is empty.
func Group(d Dependencies) kind.Group {
	binder := &bindingREST{}
	return kind.Group{
		Versions: []kind.GroupVersion{{Version: "v1", AddToScheme: addToScheme}},
		Kinds: []kind.Declaration{
			Bindings(binder),
			ComponentStatuses(d.Components),
			ConfigMaps(),
			Endpoints(),
			Events(d.EventTTL),
			LimitRanges(),
			Namespaces(),
			Nodes(d.Kubelet),
			PersistentVolumeClaims(),
			PersistentVolumes(),
			Pods(binder, d.Client, d.Kubelet),
			PodTemplates(),
			ReplicationControllers(),
			ResourceQuotas(),
			Secrets(),
			ServiceAccounts(d.Tokens, d.Objects),
			Services(d.Allocator, d.Client, d.ProxyAllowLocalAddresses, d.Kubelet),
		},
	}
}

func addToScheme(scheme *runtime.Scheme) error {
	if err := corev1.AddToScheme(scheme); err != nil {
		return err
	}
	for _, register := range []func(*runtime.Scheme) error{
		eventsv1.AddToScheme, registerConnectOptions, registerEviction, registerNodeProxyOptions,
		registerServiceProxyOptions, registerTokenRequest,
	} {
		if err := register(scheme); err != nil {
			return err
		}
	}
	return nil
}
