package legacy

import (
	"context"
	"fmt"
	"net/http"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/validation/field"
	genericregistry "k8s.io/apiserver/pkg/registry/generic/registry"
	"k8s.io/apiserver/pkg/registry/rest"
	typedcorev1 "k8s.io/client-go/kubernetes/typed/core/v1"
	netutils "k8s.io/utils/net"

	"github.com/kinproc/kinproc/chain/core/internal/streams"
)

// kubelets stands in for the kubelets, which a bare control plane does not have. It validates a
// request as far as possible without a kubelet, and then returns an error saying that there is no
// kubelet, or that the pod is simulated.
type kubelets struct {
	pods *genericregistry.Store
	// nodes may be nil.
	nodes typedcorev1.NodesGetter
	// simulated may be nil.
	simulated Kubelet
}

// Destroy does nothing: the main resource owns the store.
func (k kubelets) Destroy() {}

func (k kubelets) pod(ctx context.Context, name string) (*corev1.Pod, error) {
	found, err := k.pods.Get(ctx, name, &metav1.GetOptions{})
	if err != nil {
		return nil, err
	}
	p, ok := found.(*corev1.Pod)
	if !ok {
		return nil, fmt.Errorf("not a Pod object: %T", found)
	}
	return p, nil
}

// unreachable returns the reason why the kubelet on the node of the pod cannot be reached.
func (k kubelets) unreachable(ctx context.Context, p *corev1.Pod) error {
	if k.nodes != nil {
		node, err := k.nodes.Nodes().Get(ctx, p.Spec.NodeName, metav1.GetOptions{})
		if err != nil {
			return err
		}
		if err := addressed(node); err != nil {
			return err
		}
		if k.simulated != nil && k.simulated.Simulates(node) {
			return apierrors.NewBadRequest(fmt.Sprintf("pod %s is simulated: no container runs on node %s "+
				"to connect to", p.Name, node.Name))
		}
	}
	return apierrors.NewServiceUnavailable(fmt.Sprintf(
		"no kubelet serves pod %s: node %s is an API object without a machine", p.Name, p.Spec.NodeName))
}

// container checks that the pod has the container. The name may be empty if the pod has only one
// container.
func (k kubelets) container(p *corev1.Pod, name string) error {
	var names []string
	for _, c := range p.Spec.InitContainers {
		names = append(names, c.Name)
	}
	for _, c := range p.Spec.Containers {
		names = append(names, c.Name)
	}
	for _, c := range p.Spec.EphemeralContainers {
		names = append(names, c.Name)
	}
	switch {
	case name == "" && len(p.Spec.Containers) == 1:
		return nil
	case name == "":
		return apierrors.NewBadRequest(fmt.Sprintf(
			"a container name must be specified for pod %s: one of %s", p.Name, strings.Join(names, ", ")))
	case !slices.Contains(names, name):
		return apierrors.NewBadRequest(fmt.Sprintf("pod %s has no container %s", p.Name, name))
	}
	return nil
}

// scheduled says why the kubelet of a pod cannot be reached.
func (k kubelets) scheduled(ctx context.Context, p *corev1.Pod) error {
	if p.Spec.NodeName == "" {
		return apierrors.NewBadRequest(fmt.Sprintf("pod %s does not have a host assigned", p.Name))
	}
	return k.unreachable(ctx, p)
}

// logREST implements pods/log.
type logREST struct{ kubelets }

func (r *logREST) New() runtime.Object { return &corev1.Pod{} }

// ProducesMIMETypes implements rest.StorageMetadata.
func (r *logREST) ProducesMIMETypes(string) []string { return []string{"text/plain"} }

// ProducesObject implements rest.StorageMetadata.
func (r *logREST) ProducesObject(string) any { return "" }

// NewGetOptions implements rest.GetterWithOptions.
func (r *logREST) NewGetOptions() (runtime.Object, bool, string) {
	return &corev1.PodLogOptions{}, false, ""
}

// OverrideMetricsVerb implements rest.MetricsVerbOverride. Requests for logs count as CONNECT
// because they may stream.
func (r *logREST) OverrideMetricsVerb(verb string) string {
	if verb == "GET" {
		return "CONNECT"
	}
	return verb
}

func (r *logREST) Get(
	ctx context.Context, name string, options runtime.Object,
) (runtime.Object, error) {
	o, ok := options.(*corev1.PodLogOptions)
	if !ok {
		return nil, fmt.Errorf("not a PodLogOptions object: %T", options)
	}
	if errs := validateLogOptions(o); len(errs) > 0 {
		return nil, apierrors.NewInvalid(corev1.SchemeGroupVersion.WithKind("PodLogOptions").GroupKind(),
			name, errs)
	}
	p, err := r.pod(ctx, name)
	if err != nil {
		return nil, err
	}
	if err := r.container(p, o.Container); err != nil {
		return nil, err
	}
	if simulated, err := r.onSimulated(ctx, p); err != nil {
		return nil, err
	} else if simulated {
		return r.simulatedLog(p, o)
	}
	return nil, r.scheduled(ctx, p)
}

func validateLogOptions(o *corev1.PodLogOptions) field.ErrorList {
	var errs field.ErrorList
	if o.TailLines != nil && *o.TailLines < 0 {
		errs = append(errs, field.Invalid(field.NewPath("tailLines"), *o.TailLines,
			"must not be negative"))
	}
	if o.LimitBytes != nil && *o.LimitBytes < 1 {
		errs = append(errs, field.Invalid(field.NewPath("limitBytes"), *o.LimitBytes,
			"must be greater than 0"))
	}
	if o.SinceSeconds != nil {
		if o.SinceTime != nil {
			errs = append(errs, field.Forbidden(field.NewPath(""),
				"only one of sinceTime and sinceSeconds may be specified"))
		} else if *o.SinceSeconds < 1 {
			errs = append(errs, field.Invalid(field.NewPath("sinceSeconds"), *o.SinceSeconds,
				"must be greater than 0"))
		}
	}
	if o.Stream != nil {
		// The feature PodLogsQuerySplitStreams is off by default.
		errs = append(errs, field.Forbidden(field.NewPath("stream"),
			"may not be specified: kubelets do not separate stdout and stderr"))
	}
	return errs
}

// connectREST implements a subresource whose requests a kubelet answers.
type connectREST struct {
	kubelets
	kind    func() runtime.Object
	subpath bool
	methods []string
	connect func(ctx context.Context, name string, options runtime.Object, responder rest.Responder) (
		http.Handler, error)
}

func newExecREST(k kubelets) rest.Storage {
	return &connectREST{
		kubelets: k,
		kind:     func() runtime.Object { return &corev1.PodExecOptions{} },
		methods:  []string{"GET", "POST"},
		connect: func(
			ctx context.Context, name string, options runtime.Object, responder rest.Responder,
		) (http.Handler, error) {
			o := options.(*corev1.PodExecOptions)
			p, err := k.pod(ctx, name)
			if err != nil {
				return nil, err
			}
			wanted := streams.Wanted{Stdin: o.Stdin, Stdout: o.Stdout, Stderr: o.Stderr, TTY: o.TTY}
			return k.execute(ctx, p, o.Container, wanted, responder,
				func(container string) (Run, error) { return k.simulated.Exec(ctx, p, container, o.Command) })
		},
	}
}

func newAttachREST(k kubelets) rest.Storage {
	return &connectREST{
		kubelets: k,
		kind:     func() runtime.Object { return &corev1.PodAttachOptions{} },
		methods:  []string{"GET", "POST"},
		connect: func(
			ctx context.Context, name string, options runtime.Object, responder rest.Responder,
		) (http.Handler, error) {
			o := options.(*corev1.PodAttachOptions)
			p, err := k.pod(ctx, name)
			if err != nil {
				return nil, err
			}
			wanted := streams.Wanted{Stdin: o.Stdin, Stdout: o.Stdout, Stderr: o.Stderr, TTY: o.TTY}
			return k.execute(ctx, p, o.Container, wanted, responder,
				func(container string) (Run, error) { return k.simulated.Attach(ctx, p, container) })
		},
	}
}

func newPortForwardREST(k kubelets) rest.Storage {
	return &connectREST{
		kubelets: k,
		kind:     func() runtime.Object { return &corev1.PodPortForwardOptions{} },
		methods:  []string{"GET", "POST"},
		connect: func(
			ctx context.Context, name string, options runtime.Object, responder rest.Responder,
		) (http.Handler, error) {
			p, err := k.pod(ctx, name)
			if err != nil {
				return nil, err
			}
			return k.forward(ctx, p, options.(*corev1.PodPortForwardOptions).Ports, responder)
		},
	}
}

func newProxyREST(k kubelets) rest.Storage {
	return &connectREST{
		kubelets: k, kind: func() runtime.Object { return &corev1.PodProxyOptions{} }, subpath: true,
		methods: []string{"GET", "POST", "PUT", "PATCH", "DELETE", "HEAD", "OPTIONS"},
		connect: k.proxy,
	}
}

// proxy sends requests on to a server that runs in a pod. The name of the pod may have a scheme as
// a prefix and a port as a suffix.
func (k kubelets) proxy(
	ctx context.Context, id string, options runtime.Object, responder rest.Responder,
) (http.Handler, error) {
	scheme, name, port, ok := splitSchemeNamePort(id)
	if !ok {
		return nil, apierrors.NewBadRequest(
			fmt.Sprintf("%q is not of the form name, name:port or scheme:name:port", id))
	}
	p, err := k.pod(ctx, name)
	if err != nil {
		return nil, err
	}
	if ip := netutils.ParseIPSloppy(podIP(p)); ip == nil || !ip.IsGlobalUnicast() {
		return nil, apierrors.NewBadRequest(fmt.Sprintf("address not allowed: %q", podIP(p)))
	}
	path := "/" + strings.TrimPrefix(options.(*corev1.PodProxyOptions).Path, "/")
	if handler, err := k.standIn(ctx, p, scheme, port, path, responder); err != nil || handler != nil {
		return handler, err
	}
	return nil, apierrors.NewServiceUnavailable(fmt.Sprintf(
		"pod %s is not reachable at %s: this control plane has no pod network", p.Name, podIP(p)))
}

// splitSchemeNamePort splits "name", "name:port" and "scheme:name:port".
func splitSchemeNamePort(id string) (scheme, name, port string, ok bool) {
	switch parts := strings.Split(id, ":"); len(parts) {
	case 1:
		name = parts[0]
	case 2:
		name, port = parts[0], parts[1]
	case 3:
		scheme, name, port = parts[0], parts[1], parts[2]
	}
	return scheme, name, port, name != "" && slices.Contains([]string{"", "http", "https"}, scheme)
}

func (r *connectREST) New() runtime.Object { return r.kind() }

// ConnectMethods implements rest.Connecter.
func (r *connectREST) ConnectMethods() []string { return r.methods }

// NewConnectOptions implements rest.Connecter.
func (r *connectREST) NewConnectOptions() (runtime.Object, bool, string) {
	if r.subpath {
		return r.kind(), true, "path"
	}
	return r.kind(), false, ""
}

// Connect implements rest.Connecter.
func (r *connectREST) Connect(
	ctx context.Context, name string, options runtime.Object, responder rest.Responder,
) (http.Handler, error) {
	return r.connect(ctx, name, options, responder)
}
