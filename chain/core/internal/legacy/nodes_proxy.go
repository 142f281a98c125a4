package legacy

import (
	"context"
	"fmt"
	"net/http"
	"net/url"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/conversion"
	"k8s.io/apimachinery/pkg/runtime"
	utilnet "k8s.io/apimachinery/pkg/util/net"
	genericregistry "k8s.io/apiserver/pkg/registry/generic/registry"
	"k8s.io/apiserver/pkg/registry/rest"
)

// nodeProxy is nodes/proxy. Nodes are objects here, nothing more: there is no kubelet to connect to, and it says so.
type nodeProxy struct{ nodes *genericregistry.Store }

var _ rest.Connecter = &nodeProxy{}

// registerNodeProxyOptions lets the options be read from a query.
func registerNodeProxyOptions(scheme *runtime.Scheme) error {
	return scheme.AddConversionFunc((*url.Values)(nil), (*corev1.NodeProxyOptions)(nil), func(in, out any, _ conversion.Scope) error {
		out.(*corev1.NodeProxyOptions).Path = in.(*url.Values).Get("path")
		return nil
	})
}

func (p *nodeProxy) New() runtime.Object { return &corev1.NodeProxyOptions{} }

// Destroy leaves the store to the main resource.
func (p *nodeProxy) Destroy() {}

func (p *nodeProxy) ConnectMethods() []string {
	return []string{http.MethodGet, http.MethodPost, http.MethodPut, http.MethodPatch, http.MethodDelete, http.MethodHead, http.MethodOptions}
}

func (p *nodeProxy) NewConnectOptions() (runtime.Object, bool, string) {
	return &corev1.NodeProxyOptions{}, true, "path"
}

func (p *nodeProxy) Connect(ctx context.Context, id string, _ runtime.Object, _ rest.Responder) (http.Handler, error) {
	_, name, _, ok := utilnet.SplitSchemeNamePort(id)
	if !ok {
		return nil, apierrors.NewBadRequest(fmt.Sprintf("%q is not of the form [http:|https:]name[:port]", id))
	}
	node, err := p.nodes.Get(ctx, name, &metav1.GetOptions{})
	if err != nil {
		return nil, err
	}
	if err := addressed(node.(*corev1.Node)); err != nil {
		return nil, err
	}
	return nil, apierrors.NewServiceUnavailable(fmt.Sprintf("node %q has no kubelet: nodes of this server are objects without machines", name))
}

// addressed is why a kubelet cannot even be tried: an internal error, as kube-apiserver has it.
func addressed(node *corev1.Node) error {
	if len(node.Status.Addresses) == 0 {
		return fmt.Errorf("node %q has no address", node.Name)
	}
	return nil
}
