package streams

import (
	"bufio"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"maps"
	"net"
	"net/http"
	"strconv"
	"sync"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	utilproxy "k8s.io/apiserver/pkg/util/proxy"
	"k8s.io/streaming/pkg/httpstream"
	"k8s.io/streaming/pkg/httpstream/spdy"
	"k8s.io/streaming/pkg/httpstream/wsstream"
)

const (
	forwardProtocol = "portforward.k8s.io"
	// maxForwards is how many connections a client may have at once over one of its own.
	maxForwards = 100
)

// Dial connects to a port of a pod.
type Dial func(ctx context.Context, port int32) (net.Conn, error)

// Forward serves the forwarding of ports. The ports are those in the request, which a client names
// that speaks websockets alone.
func Forward(w http.ResponseWriter, r *http.Request, ports []int32, dial Dial) {
	switch {
	case wsstream.IsWebSocketRequestWithTunnelingProtocol(r):
		utilproxy.NewTunnelingHandler(http.HandlerFunc(
			func(w http.ResponseWriter, r *http.Request) {
				forwardSPDY(&tunnelWriter{ResponseWriter: w, header: http.Header{}}, r, dial)
			})).ServeHTTP(w, r)
	case wsstream.IsWebSocketRequest(r):
		forwardWebsocket(w, r, ports, dial)
	default:
		forwardSPDY(w, r, dial)
	}
}

// tunnelWriter writes the answer that upgrades a connection to the connection. The library expects
// it there, because in kube-apiserver it comes from a kubelet.
type tunnelWriter struct {
	http.ResponseWriter
	header http.Header
}

// Header implements http.ResponseWriter.
func (t *tunnelWriter) Header() http.Header { return t.header }

// WriteHeader implements http.ResponseWriter.
func (t *tunnelWriter) WriteHeader(code int) {
	if code == http.StatusSwitchingProtocols {
		return // Hijack writes it
	}
	maps.Copy(t.ResponseWriter.Header(), t.header)
	t.ResponseWriter.WriteHeader(code)
}

// Hijack implements http.Hijacker.
func (t *tunnelWriter) Hijack() (net.Conn, *bufio.ReadWriter, error) {
	hijacker, ok := t.ResponseWriter.(http.Hijacker)
	if !ok {
		return nil, nil, http.ErrNotSupported
	}
	conn, _, err := hijacker.Hijack()
	if err != nil {
		return nil, nil, err
	}
	answer := http.Response{
		StatusCode: http.StatusSwitchingProtocols, ProtoMajor: 1, ProtoMinor: 1, Header: t.header,
	}
	if err := answer.Write(conn); err != nil {
		_ = conn.Close()
		return nil, nil, err
	}
	return conn, bufio.NewReadWriter(bufio.NewReader(conn), bufio.NewWriter(conn)), nil
}

// Plain reports whether a request is for a websocket without SPDY in it. Its client sees nothing of
// a refusal but the code, unless the refusal is in the stream.
func Plain(r *http.Request) bool {
	return wsstream.IsWebSocketRequest(r) && !wsstream.IsWebSocketRequestWithTunnelingProtocol(r)
}

// forwards are the connections of one client.
type forwards struct {
	ctx  context.Context
	conn httpstream.Connection
	dial Dial

	running sync.WaitGroup
	mu      sync.Mutex
	pairs   map[string]*pair // by request
}

// pair are the two streams for one connection.
type pair struct{ data, failure httpstream.Stream }

func forwardSPDY(w http.ResponseWriter, r *http.Request, dial Dial) {
	if _, err := httpstream.Handshake(r, w, []string{forwardProtocol}); err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	ctx, cancel := context.WithCancel(r.Context())
	defer cancel()
	f := &forwards{ctx: ctx, dial: dial, pairs: map[string]*pair{}}
	arrived := make(chan arrival, 2*maxForwards)
	conn := spdy.NewResponseUpgrader().UpgradeResponse(bounded(w, spdyFrames()), r,
		func(s httpstream.Stream, replied <-chan struct{}) error {
			if err := checkForward(s); err != nil {
				return err
			}
			select {
			case arrived <- arrival{s, replied}:
				return nil
			default:
				return errors.New("too many connections at once")
			}
		})
	if conn == nil {
		return // the library has answered
	}
	f.conn = conn
	defer f.running.Wait()
	defer func() {
		cancel()
		_ = conn.Close()
	}()
	conn.SetIdleTimeout(idleTimeout)
	for {
		select {
		case <-conn.CloseChan():
			return
		case s := <-arrived:
			select {
			case <-s.replied:
				f.add(s)
			case <-conn.CloseChan():
				return
			}
		}
	}
}

func checkForward(s httpstream.Stream) error {
	port, err := strconv.ParseUint(s.Headers().Get(corev1.PortHeader), 10, 16)
	if err != nil || port == 0 {
		return fmt.Errorf("%q header: %q is not a port", corev1.PortHeader,
			s.Headers().Get(corev1.PortHeader))
	}
	switch kind := s.Headers().Get(corev1.StreamType); kind {
	case corev1.StreamTypeData, corev1.StreamTypeError:
		return nil
	default:
		return fmt.Errorf("%q header: %q is neither data nor error", corev1.StreamType, kind)
	}
}

// add notes a stream. A connection begins with the second one of a pair.
func (f *forwards) add(s httpstream.Stream) {
	request := s.Headers().Get(corev1.PortForwardRequestIDHeader)
	if request == "" {
		// As in a kubelet, clients without it open the error stream before the data stream.
		id := s.Identifier()
		if s.Headers().Get(corev1.StreamType) == corev1.StreamTypeData {
			id -= 2
		}
		request = strconv.FormatUint(uint64(id), 10)
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	p := f.pairs[request]
	if p == nil {
		if len(f.pairs) >= maxForwards {
			_ = s.Reset()
			return
		}
		p = &pair{}
		f.pairs[request] = p
	}
	to := &p.failure
	if s.Headers().Get(corev1.StreamType) == corev1.StreamTypeData {
		to = &p.data
	}
	if *to != nil {
		_ = s.Reset()
		return
	}
	if *to = s; p.data == nil || p.failure == nil {
		return
	}
	f.running.Go(func() {
		f.serve(p)
		f.mu.Lock()
		defer f.mu.Unlock()
		delete(f.pairs, request)
	})
}

func (f *forwards) serve(p *pair) {
	defer f.conn.RemoveStreams(p.data, p.failure)
	defer p.data.Close()
	defer p.failure.Close()
	port, err := strconv.ParseUint(p.data.Headers().Get(corev1.PortHeader), 10, 16)
	if err == nil {
		err = pipe(f.ctx, p.data, int32(port), f.dial)
	}
	if err != nil {
		_, _ = io.WriteString(p.failure, message(err))
		_ = p.data.Reset()
	}
}

// message is what a client gets of an error.
func message(err error) string {
	var api apierrors.APIStatus
	if errors.As(err, &api) {
		return api.Status().Message
	}
	return err.Error()
}

// pipe connects a client with a port until one of them ends, or ctx does.
func pipe(ctx context.Context, client io.ReadWriter, port int32, dial Dial) error {
	conn, err := dial(ctx, port)
	if err != nil {
		return err
	}
	defer conn.Close()
	defer context.AfterFunc(ctx, func() { _ = conn.Close() })()
	go func() {
		_, _ = io.Copy(conn, client)
		if half, ok := conn.(interface{ CloseWrite() error }); ok {
			_ = half.CloseWrite()
		}
	}()
	if _, err := io.Copy(client, conn); err != nil && ctx.Err() == nil {
		return fmt.Errorf("forward port %d: %w", port, err)
	}
	return nil
}

// forwardWebsocket has two channels for each port: one for data and one for errors. The first
// message of each is the port.
func forwardWebsocket(w http.ResponseWriter, r *http.Request, ports []int32, dial Dial) {
	if len(ports) == 0 || len(ports) > maxForwards {
		http.Error(w, fmt.Sprintf("query parameter ports: name from 1 to %d ports", maxForwards),
			http.StatusBadRequest)
		return
	}
	var kinds []wsstream.ChannelType
	for range ports {
		kinds = append(kinds, wsstream.ReadWriteChannel, wsstream.WriteChannel)
	}
	binaryChannels := wsstream.ChannelProtocolConfig{Binary: true, Channels: kinds}
	conn := wsstream.NewConn(map[string]wsstream.ChannelProtocolConfig{
		"": binaryChannels, "v4.channel.k8s.io": binaryChannels,
		"v4.base64.channel.k8s.io": {Channels: kinds},
	})
	conn.SetIdleTimeout(idleTimeout)
	_, opened, err := conn.Open(bounded(w, websocketFrames), r)
	if err != nil {
		return // the library has answered
	}
	defer conn.Close()
	var running sync.WaitGroup
	for i, port := range ports {
		data, failure := opened[2*i], opened[2*i+1]
		first := binary.LittleEndian.AppendUint16(nil, uint16(port))
		_, _ = data.Write(first)
		_, _ = failure.Write(first)
		running.Go(func() {
			if err := pipe(r.Context(), data, port, dial); err != nil {
				_, _ = io.WriteString(failure, message(err))
			}
		})
	}
	running.Wait()
}
