package legacy

import (
	corev1 "k8s.io/api/core/v1"
	eventsv1 "k8s.io/api/events/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes"

	"github.com/kinproc/kinproc/chain/kind"
)

// Dependencies are what some kinds of the group need of the server around them.
type Dependencies struct {
	// Tokens signs the tokens of service accounts. Nil refuses token requests.
	Tokens TokenIssuer
	// Objects are read when a token is bound to one of them. Nil refuses token requests.
	Objects BoundObjects
	// Allocator gives services their addresses. Nil refuses services.
	Allocator ServiceAllocator
	// Components are what componentstatuses lists.
	Components []Component
	// Client is a client of the server itself. Nil refuses services/proxy, and evictions ask no disruption budgets.
	Client kubernetes.Interface
	// ProxyAllowLocalAddresses lets services/proxy connect to loopback, link-local and unspecified addresses.
	ProxyAllowLocalAddresses bool
}

// Group is the core group, whose name is empty.
func Group(d Dependencies) kind.Group {
	binder := &bindingREST{}
	return kind.Group{
		Versions: []kind.GroupVersion{{Version: "v1", AddToScheme: addToScheme}},
		Kinds: []kind.Declaration{
			Bindings(binder),
			ComponentStatuses(d.Components),
			ConfigMaps(),
			Endpoints(),
			Events(),
			LimitRanges(),
			Namespaces(),
			Nodes(),
			PersistentVolumeClaims(),
			PersistentVolumes(),
			Pods(binder, d.Client),
			PodTemplates(),
			ReplicationControllers(),
			ResourceQuotas(),
			Secrets(),
			ServiceAccounts(d.Tokens, d.Objects),
			Services(d.Allocator, d.Client, d.ProxyAllowLocalAddresses),
		},
	}
}

func addToScheme(scheme *runtime.Scheme) error {
	if err := corev1.AddToScheme(scheme); err != nil {
		return err
	}
	for _, register := range []func(*runtime.Scheme) error{
		eventsv1.AddToScheme, registerConnectOptions, registerEviction, registerNodeProxyOptions, registerServiceProxyOptions, registerTokenRequest,
	} {
		if err := register(scheme); err != nil {
			return err
		}
	}
	return nil
}
