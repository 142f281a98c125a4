package legacy

import (
	"context"
	"crypto/tls"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"slices"
	"strconv"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	utilnet "k8s.io/apimachinery/pkg/util/net"
	utilproxy "k8s.io/apimachinery/pkg/util/proxy"
	"k8s.io/apiserver/pkg/registry/rest"
	"k8s.io/streaming/pkg/httpstream/wsstream"

	"github.com/kinproc/kinproc/chain/core/internal/streams"
)

// Kubelet answers for the pods on simulated nodes. Its errors refuse a request.
type Kubelet interface {
	// Simulates reports whether a node is one of those that the server simulates.
	Simulates(n *corev1.Node) bool
	// Logs returns the log of a container that has started.
	Logs(ctx context.Context, p *corev1.Pod, container string, o *corev1.PodLogOptions) (
		io.ReadCloser, error)
	// Exec returns what runs a command in a container.
	Exec(ctx context.Context, p *corev1.Pod, container string, command []string) (Run, error)
	// Attach returns what stands in for the first process of a container.
	Attach(ctx context.Context, p *corev1.Pod, container string) (Run, error)
	// Ports returns what connects to the ports of a pod.
	Ports(p *corev1.Pod) (streams.Dial, error)
}

// Run runs a command until it ends, or ctx does.
type Run func(ctx context.Context, s streams.Streams) error

// onSimulated reports whether a pod is on a simulated node.
func (k kubelets) onSimulated(ctx context.Context, p *corev1.Pod) (bool, error) {
	if k.nodes == nil || k.simulated == nil || p.Spec.NodeName == "" {
		return false, nil
	}
	node, err := k.nodes.Nodes().Get(ctx, p.Spec.NodeName, metav1.GetOptions{})
	if apierrors.IsNotFound(err) {
		return false, nil
	}
	return err == nil && k.simulated.Simulates(node), err
}

// logStream is the log of a simulated container.
type logStream struct {
	open   func(context.Context) (io.ReadCloser, error)
	follow bool
}

var _ rest.ResourceStreamer = &logStream{}

// simulatedLog returns the log of a simulated container.
func (k kubelets) simulatedLog(p *corev1.Pod, o *corev1.PodLogOptions) (runtime.Object, error) {
	name := named(p, o.Container)
	i := slices.IndexFunc(containerStatuses(&p.Status),
		func(s *corev1.ContainerStatus) bool { return s.Name == name })
	if i < 0 {
		return nil, notStarted(p, name, "ContainerCreating")
	}
	s := containerStatuses(&p.Status)[i]
	switch w, last := s.State.Waiting, s.LastTerminationState.Terminated; {
	case o.Previous && last == nil:
		return nil, apierrors.NewBadRequest(fmt.Sprintf(
			"previous terminated container %q in pod %q not found", name, p.Name))
	case w != nil && last == nil:
		return nil, notStarted(p, name, w.Reason)
	}
	return &logStream{follow: o.Follow, open: func(ctx context.Context) (io.ReadCloser, error) {
		return k.simulated.Logs(ctx, p, name, o)
	}}, nil
}

// named returns the name of a container, which may be left out if there is only one.
func named(p *corev1.Pod, container string) string {
	if container == "" {
		return p.Spec.Containers[0].Name
	}
	return container
}

func notStarted(p *corev1.Pod, container, reason string) error {
	return apierrors.NewBadRequest(fmt.Sprintf("container %q in pod %q is waiting to start: %s",
		container, p.Name, reason))
}

// GetObjectKind implements runtime.Object.
func (l *logStream) GetObjectKind() schema.ObjectKind { return schema.EmptyObjectKind }

// DeepCopyObject implements runtime.Object.
func (l *logStream) DeepCopyObject() runtime.Object { return l }

// InputStream implements rest.ResourceStreamer.
func (l *logStream) InputStream(
	ctx context.Context, _, _ string,
) (stream io.ReadCloser, flush bool, mimeType string, err error) {
	stream, err = l.open(ctx)
	return stream, l.follow, "text/plain", err
}

// running reports whether a container of a pod runs.
func running(p *corev1.Pod, container string) bool {
	return slices.ContainsFunc(containerStatuses(&p.Status), func(s *corev1.ContainerStatus) bool {
		return s.Name == container && s.State.Running != nil
	})
}

// execute returns a handler for a command that a simulated container runs, or for the refusal.
func (k kubelets) execute(
	ctx context.Context, p *corev1.Pod, container string, wanted streams.Wanted,
	responder rest.Responder, run func(container string) (Run, error),
) (http.Handler, error) {
	r := refusal{responder: responder, answer: func(w http.ResponseWriter, r *http.Request, err error) {
		streams.Exec(w, r, wanted, func(context.Context, streams.Streams) error { return err })
	}, inStream: wsstream.IsWebSocketRequest}
	if err := k.container(p, container); err != nil {
		return r.of(err), nil
	}
	simulated, err := k.onSimulated(ctx, p)
	switch {
	case err != nil:
		return nil, err
	case !simulated:
		return r.of(k.scheduled(ctx, p)), nil
	case !running(p, named(p, container)):
		return r.of(apierrors.NewBadRequest(fmt.Sprintf("container %s of pod %s is not running",
			named(p, container), p.Name))), nil
	}
	command, err := run(named(p, container))
	if err != nil {
		return r.of(err), nil
	}
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		streams.Exec(w, r, wanted, command)
	}), nil
}

// refusal refuses a connection. Clients of websockets do not see the answer to a request that
// fails, so they get it in the stream.
type refusal struct {
	responder rest.Responder
	answer    func(http.ResponseWriter, *http.Request, error)
	inStream  func(*http.Request) bool
}

func (f refusal) of(err error) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if f.inStream(r) {
			f.answer(w, r, err)
			return
		}
		f.responder.Error(err)
	})
}

// forward returns a handler that forwards ports of a pod.
func (k kubelets) forward(
	ctx context.Context, p *corev1.Pod, ports []int32, responder rest.Responder,
) (http.Handler, error) {
	r := refusal{responder: responder, answer: func(w http.ResponseWriter, r *http.Request, err error) {
		streams.Forward(w, r, ports, func(context.Context, int32) (net.Conn, error) { return nil, err })
	}, inStream: streams.Plain}
	simulated, err := k.onSimulated(ctx, p)
	if err != nil {
		return nil, err
	}
	if !simulated {
		return r.of(k.scheduled(ctx, p)), nil
	}
	dial, err := k.simulated.Ports(p)
	if err != nil {
		return r.of(err), nil
	}
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		streams.Forward(w, r, ports, dial)
	}), nil
}

// standIn returns a handler that sends requests on to what stands in for a port of a pod, or nil if
// nothing does.
func (k kubelets) standIn(
	ctx context.Context, p *corev1.Pod, scheme, port, path string, responder rest.Responder,
) (http.Handler, error) {
	if simulated, err := k.onSimulated(ctx, p); err != nil || !simulated {
		return nil, err
	}
	dial, err := k.simulated.Ports(p)
	if err != nil {
		return nil, err
	}
	number, err := portOf(p, port)
	if err != nil {
		return nil, err
	}
	if scheme == "" {
		scheme = "http"
	}
	location := &url.URL{
		Scheme: scheme, Host: net.JoinHostPort(podIP(p), strconv.Itoa(int(number))), Path: path,
	}
	// There is no name to check the certificate against.
	transport := &http.Transport{
		DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
			return dial(ctx, number)
		},
		DisableKeepAlives: true,
		Proxy:             func(*http.Request) (*url.URL, error) { return nil, nil },
		TLSClientConfig:   &tls.Config{InsecureSkipVerify: true},
	}
	return utilproxy.NewUpgradeAwareHandler(location, utilnet.SetTransportDefaults(transport), true,
		false, utilproxy.NewErrorResponder(responder)), nil
}

// portOf returns the number of a port that is named, or that of the first container, or 80.
func portOf(p *corev1.Pod, port string) (int32, error) {
	number, err := strconv.ParseUint(port, 10, 16)
	if err == nil && number > 0 {
		return int32(number), nil
	}
	for i := range p.Spec.Containers {
		for _, c := range p.Spec.Containers[i].Ports {
			if port == "" || c.Name == port {
				return c.ContainerPort, nil
			}
		}
	}
	if port == "" {
		return 80, nil
	}
	return 0, apierrors.NewBadRequest(fmt.Sprintf("pod %s has no port %q", p.Name, port))
}
