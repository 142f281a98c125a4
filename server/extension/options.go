package extension

import (
	"cmp"
	"errors"
	"fmt"
	"net"
	"slices"
	"strings"
	"time"

	"github.com/go-logr/logr"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apiserver/pkg/admission"
	genericapiserver "k8s.io/apiserver/pkg/server"
	"k8s.io/client-go/rest"
	openapicommon "k8s.io/kube-openapi/pkg/common"

	"github.com/kinproc/kinproc/chain/kind"
)

// Options configure a [Server]. Only Groups is required.
type Options struct {
	// Groups are the API groups to serve.
	Groups []kind.Group

	// Name is the name of the Service by which the control plane finds this server. It defaults to
	// the name of the first group up to the first dot.
	Name string
	// Namespace is the namespace of the Service. It defaults to "default".
	Namespace string

	// RESTConfig is for the control plane that authenticates and authorizes the users of this
	// server. If it is nil, the server runs in a pod, whose service account it uses.
	RESTConfig *rest.Config

	// BindAddress is the IP address to listen on. Default: 127.0.0.1, or all addresses in a pod,
	// where RESTConfig is nil or there is a Selector.
	BindAddress string
	// SecurePort is the port to listen on. If it is 0, that is a free one, or 8443 in a pod.
	SecurePort int
	// Listener, if set, is used instead of BindAddress and SecurePort. The server closes it.
	Listener net.Listener
	// Host is the IP address or the DNS name at which the control plane reaches this server. It
	// defaults to the address of the listener. It is not used with Selector.
	Host string
	// Selector selects the pods of this server, for a server that runs in the cluster. The Service
	// of [Server.Registration] then has this selector, and there is no EndpointSlice.
	Selector map[string]string

	// Storage is where objects are stored. The zero value is [Memory].
	Storage Storage

	// OpenAPI returns the definitions of the Go types of the kinds, as openapi-gen generates them.
	// Types without a definition, or all types if it is nil, are defined by reflection: see the
	// package documentation.
	OpenAPI openapicommon.GetOpenAPIDefinitions

	// Admission are the plugins that see a write before it is stored, in their order.
	Admission []admission.Interface
	// ClusterAdmission makes the control plane's admission apply to this server too: namespaces
	// must exist, and the admission webhooks and policies of the control plane are called. Their
	// configurations are watched, which needs permissions: see the package documentation.
	ClusterAdmission bool

	// CertDir is the directory of the serving certificates. What is missing there is created. If it
	// is empty, certificates are in memory, and each start has a new authority.
	CertDir string

	// Log receives what the server has to say. The zero value discards it.
	Log logr.Logger

	// Configure changes the configuration of the API server last. It is for what no other option
	// covers, such as audit logs.
	Configure func(*genericapiserver.Config)

	// validity is how long serving certificates are valid; 0 means servingValidity.
	validity time.Duration
}

// Defaults of [Options].
const (
	DefaultNamespace   = "default"
	DefaultBindAddress = "127.0.0.1"
	// DefaultPodPort is the default of Options.SecurePort in a pod.
	DefaultPodPort = 8443
)

// complete returns the options with defaults, or all mistakes in them.
func (o Options) complete() (Options, error) {
	if o.Name == "" && len(o.Groups) > 0 {
		o.Name, _, _ = strings.Cut(o.Groups[0].Name, ".")
	}
	if o.Namespace == "" {
		o.Namespace = DefaultNamespace
	}
	if o.RESTConfig == nil || len(o.Selector) > 0 {
		o.SecurePort = cmp.Or(o.SecurePort, DefaultPodPort)
	} else {
		o.BindAddress = cmp.Or(o.BindAddress, DefaultBindAddress)
	}
	if err := errors.Join(o.check()...); err != nil {
		return o, fmt.Errorf("options of the extension API server: %w", err)
	}
	return o, nil
}

func (o *Options) check() []error {
	var errs []error
	wrong := func(format string, args ...any) { errs = append(errs, fmt.Errorf(format, args...)) }
	if len(o.Groups) == 0 {
		wrong("Groups: declare at least one API group")
	}
	for i, g := range o.Groups {
		at := fmt.Sprintf("Groups[%d]", i)
		switch problems := validation.IsDNS1123Subdomain(g.Name); {
		case g.Name == "":
			wrong("%s.Name: the core group is the control plane's own: name another", at)
		case len(problems) > 0:
			wrong("%s.Name: %q: %s", at, g.Name, strings.Join(problems, "; "))
		case !strings.Contains(g.Name, "."):
			wrong("%s.Name: %q: groups without a dot are the control plane's own: "+
				"name it like %s.example.com", at, g.Name, g.Name)
		}
		if len(g.Versions) == 0 {
			wrong("%s.Versions: group %q needs at least one version", at, g.Name)
		}
		if len(g.Kinds) == 0 {
			wrong("%s.Kinds: group %q needs at least one kind", at, g.Name)
		}
		if slices.ContainsFunc(o.Groups[:i], func(h kind.Group) bool { return h.Name == g.Name }) {
			wrong("%s.Name: group %q is declared twice", at, g.Name)
		}
	}
	if problems := validation.IsDNS1035Label(o.Name); len(o.Groups) > 0 && len(problems) > 0 {
		wrong("Name: %q is not the name of a service: %s", o.Name, strings.Join(problems, "; "))
	}
	if problems := validation.IsDNS1123Label(o.Namespace); len(problems) > 0 {
		wrong("Namespace: %q: %s", o.Namespace, strings.Join(problems, "; "))
	}
	if o.BindAddress != "" && net.ParseIP(o.BindAddress) == nil {
		wrong("BindAddress: %q is not an IP address", o.BindAddress)
	}
	if o.SecurePort < 0 || o.SecurePort > 65535 {
		wrong("SecurePort: %d is not between 0 and 65535", o.SecurePort)
	}
	if o.Listener != nil {
		if _, ok := o.Listener.Addr().(*net.TCPAddr); !ok {
			wrong("Listener: it listens on %s %s, and control planes connect by TCP",
				o.Listener.Addr().Network(), o.Listener.Addr())
		}
	}
	if problems := validation.IsDNS1123Subdomain(o.Host); o.Host != "" &&
		net.ParseIP(o.Host) == nil && len(problems) > 0 {
		wrong("Host: %q is neither an IP address nor a DNS name", o.Host)
	}
	if o.Host != "" && len(o.Selector) > 0 {
		wrong("Host and Selector: a server is either at an address or in pods: set only one")
	}
	for i, plugin := range o.Admission {
		if plugin == nil {
			wrong("Admission[%d] is nil", i)
		}
	}
	return append(errs, o.Storage.problems...)
}
