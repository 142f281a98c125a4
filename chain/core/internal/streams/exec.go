package streams

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strconv"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/remotecommand"
	"k8s.io/streaming/pkg/httpstream"
	"k8s.io/streaming/pkg/httpstream/spdy"
	"k8s.io/streaming/pkg/httpstream/wsstream"
)

// Streams are those of a command in a container. All but Stdin are never nil.
type Streams struct {
	// Stdin is nil unless the client sends input.
	Stdin          io.Reader
	Stdout, Stderr io.Writer
	// TTY is true if the client has a terminal in raw mode.
	TTY bool
}

// Exit is the error of a command that ended with another exit code than 0.
type Exit struct{ Code int }

// Error implements error.
func (e *Exit) Error() string { return fmt.Sprintf("command terminated with exit code %d", e.Code) }

// Wanted says which streams a client asks for.
type Wanted struct{ Stdin, Stdout, Stderr, TTY bool }

const (
	// creationTimeout is how long a client may take to open its streams.
	creationTimeout = 30 * time.Second
	// idleTimeout ends a connection on which nothing happens, as with a kubelet.
	idleTimeout = 4 * time.Hour
	// errorDeadline bounds the last message of a websocket.
	errorDeadline = 10 * time.Second
)

// Exec serves a connection whose streams run gets. The context of run ends with the connection.
func Exec(
	w http.ResponseWriter, r *http.Request, wanted Wanted,
	run func(context.Context, Streams) error,
) {
	ctx, cancel := context.WithCancel(r.Context())
	defer cancel()
	var c *execution
	if wsstream.IsWebSocketRequest(r) {
		c = openWebsocket(w, r, wanted, cancel)
	} else {
		c = openSPDY(w, r, wanted, cancel)
	}
	if c == nil {
		return // the client has an answer
	}
	defer c.close()
	c.report(run(ctx, c.Streams))
}

// execution is a connection of exec or attach.
type execution struct {
	Streams
	// failure is where the end is reported, and plain is set if that is a text and not a Status.
	failure io.Writer
	plain   bool
	close   func()
}

// report says how the command has ended.
func (c *execution) report(err error) {
	status := statusOf(err)
	if c.plain {
		if err != nil {
			_, _ = io.WriteString(c.failure, status.Message)
		}
		return
	}
	data, err := json.Marshal(status)
	if err != nil {
		return // a Status can be written
	}
	_, _ = c.failure.Write(data) // the client is gone
}

func statusOf(err error) metav1.Status {
	var exit *Exit
	var api apierrors.APIStatus
	switch {
	case err == nil:
		return metav1.Status{Status: metav1.StatusSuccess}
	case errors.As(err, &exit):
		return metav1.Status{
			Status: metav1.StatusFailure, Reason: remotecommand.NonZeroExitCodeReason,
			Message: exit.Error(),
			Details: &metav1.StatusDetails{Causes: []metav1.StatusCause{{
				Type: remotecommand.ExitCodeCauseType, Message: strconv.Itoa(exit.Code),
			}}},
		}
	case errors.As(err, &api):
		return api.Status()
	}
	return apierrors.NewInternalError(err).Status()
}

// The channels of a websocket.
const (
	channelStdin = iota
	channelStdout
	channelStderr
	channelError
	channelResize
	channels
)

func openWebsocket(
	w http.ResponseWriter, r *http.Request, wanted Wanted, gone func(),
) *execution {
	kinds := make([]wsstream.ChannelType, channels)
	for i, k := range map[int]struct {
		kind   wsstream.ChannelType
		wanted bool
	}{
		channelStdin:  {wsstream.ReadChannel, wanted.Stdin},
		channelStdout: {wsstream.WriteChannel, wanted.Stdout},
		channelStderr: {wsstream.WriteChannel, wanted.Stderr && !wanted.TTY},
		channelError:  {wsstream.WriteChannel, true},
		channelResize: {wsstream.ReadChannel, true},
	} {
		if kinds[i] = wsstream.IgnoreChannel; k.wanted {
			kinds[i] = k.kind
		}
	}
	binary := wsstream.ChannelProtocolConfig{Binary: true, Channels: kinds}
	text := wsstream.ChannelProtocolConfig{Channels: kinds}
	conn := wsstream.NewConn(map[string]wsstream.ChannelProtocolConfig{
		"": binary, remotecommand.StreamProtocolV5Name: binary,
		remotecommand.StreamProtocolV4Name: binary, "v4.base64.channel.k8s.io": text,
		remotecommand.StreamProtocolV1Name: binary, "base64.channel.k8s.io": text,
	})
	conn.SetIdleTimeout(idleTimeout)
	protocol, opened, err := conn.Open(bounded(w, websocketFrames), r)
	if err != nil {
		return nil // the library has answered
	}
	// The end of a channel that the client writes to is the only sign of the end of the connection.
	var watching sync.WaitGroup
	watching.Go(func() {
		_, _ = io.Copy(io.Discard, opened[channelResize])
		gone()
	})
	c := &execution{
		Streams: Streams{Stdout: io.Discard, Stderr: io.Discard, TTY: wanted.TTY},
		failure: opened[channelError], close: func() {
			_ = conn.Close() // it is over in any case
			watching.Wait()
		},
		plain: protocol == "" || protocol == remotecommand.StreamProtocolV1Name ||
			protocol == "base64.channel.k8s.io",
	}
	first := opened[channelError]
	if wanted.Stdin {
		c.Stdin = opened[channelStdin]
	}
	if wanted.Stderr && !wanted.TTY {
		c.Stderr, first = opened[channelStderr], opened[channelStderr]
	}
	if wanted.Stdout {
		c.Stdout, first = opened[channelStdout], opened[channelStdout]
	}
	conn.SetWriteDeadline(errorDeadline)
	_, _ = first.Write(nil) // tells the client that it is connected
	return c
}

// arrival is a stream that a client has opened.
type arrival struct {
	httpstream.Stream
	replied <-chan struct{}
}

func openSPDY(
	w http.ResponseWriter, r *http.Request, wanted Wanted, gone func(),
) (c *execution) {
	protocol, err := httpstream.Handshake(r, w, remotecommand.SupportedStreamingProtocols)
	if err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return nil
	}
	arrived := make(chan arrival, channels) // a client opens each stream once
	conn := spdy.NewResponseUpgrader().UpgradeResponse(bounded(w, spdyFrames()), r,
		func(s httpstream.Stream, replied <-chan struct{}) error {
			select {
			case arrived <- arrival{s, replied}:
				return nil
			default:
				return errors.New("too many streams")
			}
		})
	if conn == nil {
		return nil // the library has answered
	}
	conn.SetIdleTimeout(idleTimeout)
	var watching sync.WaitGroup
	defer func() {
		if c == nil {
			_ = conn.Close()
			watching.Wait()
		}
	}()
	watching.Go(func() {
		<-conn.CloseChan()
		gone()
	})
	resizes := wanted.TTY && protocol != remotecommand.StreamProtocolV1Name &&
		protocol != remotecommand.StreamProtocolV2Name
	open := map[string]httpstream.Stream{}
	expected := map[string]bool{
		corev1.StreamTypeError: true, corev1.StreamTypeStdin: wanted.Stdin,
		corev1.StreamTypeStdout: wanted.Stdout, corev1.StreamTypeStderr: wanted.Stderr && !wanted.TTY,
		corev1.StreamTypeResize: resizes,
	}
	count := 0
	for _, is := range expected {
		if is {
			count++
		}
	}
	late := time.NewTimer(creationTimeout)
	defer late.Stop()
	for len(open) < count {
		select {
		case s := <-arrived:
			name := s.Headers().Get(corev1.StreamType)
			if !expected[name] || open[name] != nil {
				return nil
			}
			select {
			case <-s.replied:
			case <-r.Context().Done():
			}
			open[name] = s
		case <-conn.CloseChan():
			return nil
		case <-late.C:
			return nil
		}
	}
	c = &execution{
		Streams: Streams{Stdout: io.Discard, Stderr: io.Discard, TTY: wanted.TTY},
		failure: open[corev1.StreamTypeError],
		plain: protocol != remotecommand.StreamProtocolV4Name &&
			protocol != remotecommand.StreamProtocolV5Name,
		close: func() {
			_ = conn.Close() // it is over in any case
			watching.Wait()
		},
	}
	if s := open[corev1.StreamTypeStdin]; s != nil {
		c.Stdin = s
	}
	if s := open[corev1.StreamTypeStdout]; s != nil {
		c.Stdout = s
	}
	if s := open[corev1.StreamTypeStderr]; s != nil {
		c.Stderr = s
	}
	if s := open[corev1.StreamTypeResize]; s != nil {
		watching.Go(func() { _, _ = io.Copy(io.Discard, s) })
	}
	return c
}
