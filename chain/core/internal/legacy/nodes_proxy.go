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

// nodeProxy implements nodes/proxy. The nodes of this server are API objects without a kubelet, so
// every request ends in an error.
type nodeProxy struct {
	nodes *genericregistry.Store
	// kubelet may be nil.
	kubelet Kubelet
}

var _ rest.Connecter = &nodeProxy{}

// registerNodeProxyOptions registers the conversion from query parameters to NodeProxyOptions.
func registerNodeProxyOptions(scheme *runtime.Scheme) error {
	return scheme.AddConversionFunc((*url.Values)(nil), (*corev1.NodeProxyOptions)(nil),
		func(in, out any, _ conversion.Scope) error {
			out.(*corev1.NodeProxyOptions).Path = in.(*url.Values).Get("path")
			return nil
		})
}

func (p *nodeProxy) New() runtime.Object { return &corev1.NodeProxyOptions{} }

// Destroy does nothing: the main resource owns the store.
func (p *nodeProxy) Destroy() {}

func (p *nodeProxy) ConnectMethods() []string {
	return []string{
		http.MethodGet, http.MethodPost, http.MethodPut, http.MethodPatch, http.MethodDelete,
		http.MethodHead, http.MethodOptions,
	}
}

func (p *nodeProxy) NewConnectOptions() (runtime.Object, bool, string) {
	return &corev1.NodeProxyOptions{}, true, "path"
}

func (p *nodeProxy) Connect(
	ctx context.Context, id string, _ runtime.Object, _ rest.Responder,
) (http.Handler, error) {
	_, name, _, ok := utilnet.SplitSchemeNamePort(id)
	if !ok {
		return nil, apierrors.NewBadRequest(fmt.Sprintf("%q is not of the form [http:|https:]name[:port]",
			id))
	}
	node, err := p.nodes.Get(ctx, name, &metav1.GetOptions{})
	if err != nil {
		return nil, err
	}
	if err := addressed(node.(*corev1.Node)); err != nil {
		return nil, err
	}
	if p.kubelet != nil && p.kubelet.Simulates(node.(*corev1.Node)) {
		return nil, apierrors.NewServiceUnavailable(fmt.Sprintf("node %q is simulated: it has no kubelet",
			name))
	}
	return nil, apierrors.NewServiceUnavailable(fmt.Sprintf(
		"node %q has no kubelet: the nodes of this server are API objects without machines", name))
}

// addressed returns an error if the node has no address at which its kubelet could be reached. As
// in kube-apiserver, the client gets an internal error.
func addressed(node *corev1.Node) error {
	if len(node.Status.Addresses) == 0 {
		return fmt.Errorf("node %q has no address", node.Name)
	}
	return nil
}
