package looptest

import (
	"archive/tar"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/gorilla/websocket"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/portforward"
	"k8s.io/client-go/tools/remotecommand"
	"k8s.io/client-go/transport/spdy"
	"k8s.io/client-go/util/exec"
	"k8s.io/utils/ptr"

	"github.com/kinproc/kinproc/server"
	"github.com/kinproc/kinproc/server/internal/controllers/workloadtest"
	"github.com/kinproc/kinproc/server/servertest"
)

// kubelet is a control plane with a node, for requests that a kubelet answers.
type kubelet struct {
	*testing.T
	*server.Server
	client kubernetes.Interface
}

func startKubelet(t *testing.T, configure ...func(*server.Options)) kubelet {
	t.Helper()
	s := servertest.Run(t, append([]func(*server.Options){servertest.Workloads}, configure...)...)
	return kubelet{t, s, workloadtest.Client(t, s)}
}

// create creates a pod and waits until it runs.
func (k kubelet) create(name string, change ...func(*corev1.Pod)) *corev1.Pod {
	k.Helper()
	nodesCreatePod(k.T, k.client, nodesPod(name, change...))
	return nodesAwaitPod(k.T, k.client, name, func(p *corev1.Pod) bool {
		return p.Status.Phase == corev1.PodRunning
	})
}

// logs returns the log of a pod.
func (k kubelet) logs(pod string, o corev1.PodLogOptions) (string, error) {
	answer := k.client.CoreV1().Pods("default").GetLogs(pod, &o).Do(k.Context())
	if err := answer.Error(); err != nil { // that of Raw would not have the message
		return "", err
	}
	data, err := answer.Raw()
	return string(data), err
}

func (k kubelet) wantLogs(pod string, o corev1.PodLogOptions, want string) {
	k.Helper()
	got, err := k.logs(pod, o)
	if err != nil || got != want {
		k.Errorf("%s logs %q, %v, want %q", pod, got, err, want)
	}
}

// TestKubeletLogs has logs from annotations, whose lines follow from the time.
func TestKubeletLogs(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		k := startKubelet(t, servertest.InBubble)
		nodesAwait(t, k.client, 1)
		k.create("plain", nodesAnnotated("log", "a\nb\nc\n"))
		k.create("rate", nodesAnnotated("log.c", "line {n}"), nodesAnnotated("log-rate", "2"))
		k.create("nothing", nodesAnnotated("log", ""))
		k.create("crash", nodesAnnotated("log", "oops"), nodesAnnotated("crash-loop", "true"))
		k.create("echo", func(p *corev1.Pod) {
			p.Spec.Containers[0].Command = []string{"sh", "-c", "echo hello there; sleep 5"}
		})
		k.wantLogs("plain", corev1.PodLogOptions{}, "a\nb\nc\n")
		k.wantLogs("plain", corev1.PodLogOptions{TailLines: ptr.To[int64](2)}, "b\nc\n")
		k.wantLogs("plain", corev1.PodLogOptions{LimitBytes: ptr.To[int64](3)}, "a\nb")
		k.wantLogs("nothing", corev1.PodLogOptions{}, "")
		k.wantLogs("echo", corev1.PodLogOptions{}, "hello there\n")
		k.wantLogs("crash", corev1.PodLogOptions{Previous: true}, "oops\n")
		if _, err := k.logs("plain", corev1.PodLogOptions{Previous: true}); !apierrors.IsBadRequest(err) {
			t.Errorf("the log of a run that was not: %v", err)
		}
		pod := workloadtest.Must(k.client.CoreV1().Pods("default").Get(t.Context(), "rate",
			metav1.GetOptions{}))(t)
		began := pod.Status.ContainerStatuses[0].State.Running.StartedAt.Time
		time.Sleep(time.Until(began.Add(1700 * time.Millisecond)))
		k.wantLogs("rate", corev1.PodLogOptions{}, "line 1\nline 2\nline 3\nline 4\n")
		k.wantLogs("rate", corev1.PodLogOptions{SinceSeconds: ptr.To[int64](1)}, "line 3\nline 4\n")
		k.wantLogs("rate", corev1.PodLogOptions{
			SinceTime: ptr.To(metav1.NewTime(began.Add(time.Second))), Timestamps: true,
		}, fmt.Sprintf("%s line 3\n%s line 4\n",
			began.Add(time.Second).UTC().Format(time.RFC3339Nano),
			began.Add(1500*time.Millisecond).UTC().Format(time.RFC3339Nano)))

		// A follower gets the lines as they come, and ends with the pod.
		stream := workloadtest.Must(k.client.CoreV1().Pods("default").GetLogs("rate",
			&corev1.PodLogOptions{Follow: true, TailLines: ptr.To[int64](1)}).Stream(t.Context()))(t)
		defer stream.Close()
		first := make([]byte, len("line 4\nline 5\n"))
		workloadtest.Must(io.ReadFull(stream, first))(t)
		if string(first) != "line 4\nline 5\n" {
			t.Errorf("the follower gets %q first", first)
		}
		workloadtest.OK(t, k.client.CoreV1().Pods("default").Delete(t.Context(), "rate",
			metav1.DeleteOptions{}))
		workloadtest.Must(io.Copy(io.Discard, stream))(t)

		stream = workloadtest.Must(k.client.CoreV1().Pods("default").GetLogs("echo",
			&corev1.PodLogOptions{Follow: true}).Stream(t.Context()))(t)
		defer stream.Close()
		if all := workloadtest.Must(io.ReadAll(stream))(t); string(all) != "hello there\n" {
			t.Errorf("the follower of a container that ends gets %q", all)
		}
	})
}

// TestKubeletLogFiles has logs from files of a directory, and of none outside of it.
func TestKubeletLogFiles(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	logs := filepath.Join(dir, "logs")
	workloadtest.OK(t, os.Mkdir(logs, 0o755))
	workloadtest.OK(t, os.WriteFile(filepath.Join(logs, "app.log"), []byte("from a file\n"), 0o600))
	workloadtest.OK(t, os.WriteFile(filepath.Join(dir, "secret"), []byte("secret\n"), 0o600))
	workloadtest.OK(t, os.Symlink(filepath.Join(dir, "secret"), filepath.Join(logs, "link")))
	k := startKubelet(t, func(o *server.Options) { o.SimulatedLogDir = logs })
	k.create("app", nodesAnnotated("log-file", "app.log"))
	k.wantLogs("app", corev1.PodLogOptions{}, "from a file\n")
	for i, file := range []string{"../secret", filepath.Join(dir, "secret"), "link", "none", "."} {
		name := fmt.Sprint("bad", i)
		k.create(name, nodesAnnotated("log-file", file))
		if got, err := k.logs(name, corev1.PodLogOptions{}); !apierrors.IsBadRequest(err) {
			t.Errorf("the file %s is logged: %q, %v", file, got, err)
		}
	}
	closed := startKubelet(t)
	closed.create("app", nodesAnnotated("log-file", "app.log"))
	_, err := closed.logs("app", corev1.PodLogOptions{})
	if !apierrors.IsBadRequest(err) || !strings.Contains(err.Error(), "--simulated-log-dir") {
		t.Errorf("without a directory: %v", err)
	}
}

// kubeletCommands is a table of commands.
const kubeletCommands = `
- command: psql -c "select 1"
  stdout: |
    1
- command: broken*
  stderr: "it broke\n"
  exit: 3
- command: slow
  stdout: "done\n"
  delay: 10ms
`

// exec runs a command in a pod.
func (k kubelet) exec(
	executor func(*rest.Config, string, *url.URL) (remotecommand.Executor, error), sub, pod, stdin string,
	tty bool, command ...string,
) (stdout, stderr string, err error) {
	k.Helper()
	request := k.client.CoreV1().RESTClient().Get().Resource("pods").Namespace("default").Name(pod).
		SubResource(sub)
	if sub == "exec" {
		request.VersionedParams(&corev1.PodExecOptions{
			Command: command, Stdin: stdin != "", Stdout: true, Stderr: !tty, TTY: tty,
		}, scheme.ParameterCodec)
	} else {
		request.VersionedParams(&corev1.PodAttachOptions{
			Stdin: stdin != "", Stdout: true, Stderr: !tty, TTY: tty,
		}, scheme.ParameterCodec)
	}
	e, err := executor(k.RESTConfig(), http.MethodGet, request.URL())
	if err != nil {
		return "", "", err
	}
	var out, errOut bytes.Buffer
	o := remotecommand.StreamOptions{Stdout: &out, Tty: tty}
	if !tty {
		o.Stderr = &errOut
	}
	if stdin != "" {
		o.Stdin = strings.NewReader(stdin)
	}
	err = e.StreamWithContext(k.Context(), o)
	return out.String(), errOut.String(), err
}

func kubeletWebsocket(c *rest.Config, method string, to *url.URL) (remotecommand.Executor, error) {
	return remotecommand.NewWebSocketExecutor(c, method, to.String())
}

// TestKubeletExec runs commands of a table over both protocols.
func TestKubeletExec(t *testing.T) {
	t.Parallel()
	k := startKubelet(t)
	workloadtest.Must(k.client.CoreV1().ConfigMaps("default").Create(t.Context(), &corev1.ConfigMap{
		ObjectMeta: metav1.ObjectMeta{Name: "tables"}, Data: map[string]string{"db.yaml": kubeletCommands},
	}, metav1.CreateOptions{}))(t)
	workloadtest.Must(k.client.CoreV1().ConfigMaps("default").Create(t.Context(), &corev1.ConfigMap{
		ObjectMeta: metav1.ObjectMeta{Name: "wrong"}, Data: map[string]string{"db.yaml": "- cmd: a"},
	}, metav1.CreateOptions{}))(t)
	k.create("db", nodesAnnotated("commands", "tables"), nodesAnnotated("log", "ready"))
	k.create("wrong", nodesAnnotated("commands", "wrong"))
	k.create("missing", nodesAnnotated("commands", "missing"))
	k.create("plain")
	for name, executor := range map[string]func(*rest.Config, string, *url.URL) (
		remotecommand.Executor, error){
		"SPDY": remotecommand.NewSPDYExecutor, "websocket": kubeletWebsocket,
	} {
		t.Run(name, func(t *testing.T) {
			k := kubelet{t, k.Server, k.client}
			check := func(command []string, wantOut, wantErr string, code int) {
				t.Helper()
				stdout, stderr, err := k.exec(executor, "exec", "db", "", false, command...)
				var exit exec.CodeExitError
				if code == 0 && err != nil || code != 0 && (!errors.As(err, &exit) || exit.Code != code) ||
					stdout != wantOut || stderr != wantErr {
					t.Errorf("%v: %q, %q, %v", command, stdout, stderr, err)
				}
			}
			check([]string{"psql", "-c", "select 1"}, "1\n", "", 0)
			check([]string{"sh", "-c", `psql -c "select 1"`}, "1\n", "", 0)
			check([]string{"broken", "pipe"}, "", "it broke\n", 3)
			check([]string{"slow"}, "done\n", "", 0)
			check([]string{"echo", "hi", "there"}, "hi there\n", "", 0)
			check([]string{"sh", "-c", "exit 5"}, "", "", 5)
			check([]string{"sh", "-c", "slow"}, "done\n", "", 0)
			check([]string{"other"}, "", "other: not found in the commands of this simulated pod\n", 127)

			// A shell answers the lines of its input.
			stdout, stderr, err := k.exec(executor, "exec", "db", "slow\nbroken\nwhat\nexit 4\nslow\n",
				false, "sh")
			var exit exec.CodeExitError
			if stdout != "done\n" || stderr != "it broke\nwhat: not found\n" || !errors.As(err, &exit) ||
				exit.Code != 4 {
				t.Errorf("the shell prints %q, %q, %v", stdout, stderr, err)
			}
			stdout, _, err = k.exec(executor, "exec", "db", "slop\x7fw\r\x04", true, "/bin/bash")
			if want := "$ slop\b \bw\r\ndone\r\n$ \r\n"; stdout != want || err != nil {
				t.Errorf("the terminal shows %q, %v, want %q", stdout, err, want)
			}
			stdout, _, err = k.exec(executor, "attach", "db", "slow\n", false)
			if stdout != "done\n" || err != nil {
				t.Errorf("attached: %q, %v", stdout, err)
			}
			for pod, want := range map[string]string{
				"wrong": "has at \"db.yaml\" no list", "missing": "ConfigMap missing",
				"plain": "pod plain is simulated",
			} {
				if _, _, err := k.exec(executor, "exec", pod, "", false, "ls"); err == nil ||
					!strings.Contains(err.Error(), want) {
					t.Errorf("exec in %s: %v, want one with %q", pod, err, want)
				}
			}
		})
	}
}

// TestKubeletCopies copies files into a pod and out of it, with the commands of kubectl cp.
func TestKubeletCopies(t *testing.T) {
	t.Parallel()
	k := startKubelet(t)
	k.create("p", func(p *corev1.Pod) {
		p.Spec.Containers[0].VolumeMounts = []corev1.VolumeMount{{Name: "data", MountPath: "/data"}}
		p.Spec.Volumes = []corev1.Volume{{Name: "data"}}
	})
	archive := func(files ...string) string {
		var text bytes.Buffer
		w := tar.NewWriter(&text)
		for i := 0; i < len(files); i += 2 {
			workloadtest.OK(t, w.WriteHeader(&tar.Header{
				Name: files[i], Typeflag: tar.TypeReg, Mode: 0o640, Size: int64(len(files[i+1])),
			}))
			workloadtest.Must(io.WriteString(w, files[i+1]))(t)
		}
		workloadtest.OK(t, w.Close())
		return text.String()
	}
	for name, executor := range map[string]func(*rest.Config, string, *url.URL) (
		remotecommand.Executor, error){
		"SPDY": remotecommand.NewSPDYExecutor, "websocket": kubeletWebsocket,
	} {
		t.Run(name, func(t *testing.T) {
			k := kubelet{t, k.Server, k.client}
			run := func(stdin string, command ...string) (stdout, said string) {
				t.Helper()
				stdout, said, err := k.exec(executor, "exec", "p", stdin, false, command...)
				if err != nil {
					said += err.Error()
				}
				return stdout, said
			}
			want := func(part, got string) {
				t.Helper()
				if part == "" && got != "" || !strings.Contains(got, part) {
					t.Errorf("said is %q, want %q", got, part)
				}
			}
			in := "/data/" + name
			_, said := run("", "test", "-d", "/data")
			want("", said)
			_, said = run("", "test", "-d", in)
			want("exit code 1", said)
			_, said = run(archive("a", "one\n", "sub/b", "two\n", "../../c", "three\n"),
				"tar", "-xmf", "-", "-C", in)
			want("", said)
			_, said = run("", "test", "-d", in+"/sub")
			want("", said)
			stdout, said := run("", "cat", in+"/a", in+"/sub/b", in+"/c")
			want("", said)
			if stdout != "one\ntwo\nthree\n" {
				t.Errorf("cat prints %q", stdout)
			}
			stdout, said = run("", "tar", "cf", "-", in+"/sub")
			want("", said)
			out := tar.NewReader(strings.NewReader(stdout))
			header := workloadtest.Must(out.Next())(t)
			data := workloadtest.Must(io.ReadAll(out))(t)
			if header.Name != in[1:]+"/sub/b" || header.Mode != 0o640 || string(data) != "two\n" {
				t.Errorf("the archive has %s, %o, %q", header.Name, header.Mode, data)
			}
			if _, err := out.Next(); err != io.EOF {
				t.Errorf("the archive has more: %v", err)
			}
			_, said = run("", "tar", "cf", "-", in+"/su")
			want("nothing of that name was copied", said)
			_, said = run(archive("big", strings.Repeat("x", 1<<20)), "tar", "xf", "-", "-C", in)
			want("tar: a simulated pod keeps files of at most 1 MiB", said)
			// with those that are there
			_, said = run(archive("more", strings.Repeat("x", 1<<20-1<<10)), "tar", "xf", "-", "-C", in)
			want("tar: a simulated pod keeps files of at most 1 MiB", said)
			_, said = run("", "test", "-e", in+"/more")
			want("exit code 1", said)
			_, said = run("no archive", "tar", "xf", "-")
			want("tar: read the archive: ", said)
		})
	}
}

// dial opens a websocket as clients in other languages do.
func (k kubelet) dial(path string, query url.Values) *websocket.Conn {
	k.Helper()
	config := k.RESTConfig()
	tlsConfig := workloadtest.Must(rest.TLSConfigFor(config))(k.T)
	dialer := websocket.Dialer{TLSClientConfig: tlsConfig, Subprotocols: []string{"v4.channel.k8s.io"}}
	address := strings.Replace(config.Host, "https://", "wss://", 1) + path + "?" + query.Encode()
	conn, response, err := dialer.DialContext(k.Context(), address, nil)
	if err != nil {
		if response != nil {
			k.Fatalf("%v: %s", err, response.Status)
		}
		k.Fatal(err)
	}
	k.Cleanup(func() { _ = conn.Close() })
	return conn
}

// message returns the first message on a channel that is longer than skip.
func (k kubelet) message(conn *websocket.Conn, channel byte, skip int) string {
	k.Helper()
	for {
		_, data, err := conn.ReadMessage()
		if err != nil {
			k.Fatalf("nothing comes on channel %d: %v", channel, err)
		}
		if len(data) > 1+skip && data[0] == channel {
			return string(data[1:])
		}
	}
}

// TestKubeletRefusals reads refusals as clients do that show nothing of the answer to a request.
func TestKubeletRefusals(t *testing.T) {
	t.Parallel()
	k := startKubelet(t)
	k.create("plain")
	const pod = "/api/v1/namespaces/default/pods/plain/"
	conn := k.dial(pod+"exec", url.Values{"command": {"ls"}, "stdout": {"true"}})
	var status metav1.Status
	workloadtest.OK(t, json.Unmarshal([]byte(k.message(conn, 3, 0)), &status))
	if status.Status != metav1.StatusFailure || !strings.Contains(status.Message,
		"pod plain is simulated") {
		t.Errorf("exec is refused with %+v", status)
	}
	conn = k.dial(pod+"exec", url.Values{"command": {"ls"}, "stdout": {"true"}, "container": {"x"}})
	status = metav1.Status{}
	workloadtest.OK(t, json.Unmarshal([]byte(k.message(conn, 3, 0)), &status))
	if status.Reason != metav1.StatusReasonBadRequest ||
		status.Message != "pod plain has no container x" {
		t.Errorf("exec in an unknown container is refused with %+v", status)
	}
	conn = k.dial(pod+"attach", url.Values{"stdout": {"true"}})
	if got := k.message(conn, 3, 0); !strings.Contains(got, "pod plain is simulated") {
		t.Errorf("attach is refused with %s", got)
	}
	conn = k.dial(pod+"portforward", url.Values{"ports": {"80"}})
	if got := k.message(conn, 1, 2); !strings.Contains(got, "pod plain is simulated") {
		t.Errorf("the forwarding of a port is refused with %s", got)
	}
}

// TestKubeletForward has a process that stands in for a pod.
func TestKubeletForward(t *testing.T) {
	t.Parallel()
	process := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		_, _ = fmt.Fprintf(w, "%s of the process", r.URL.Path)
	}))
	defer process.Close()
	at := workloadtest.Must(url.Parse(process.URL))(t)
	k := startKubelet(t, func(o *server.Options) { o.StandInPorts = []string{at.Port()} })
	labelled := func(p *corev1.Pod) { p.Labels = map[string]string{"app": "web"} }
	k.create("web", labelled, nodesAnnotated("forward-80", at.Host), nodesAnnotated("forward-81", "127.0.0.1:1"),
		nodesAnnotated("forward-82", "192.0.2.7:80"), nodesAnnotated("forward-83", "example.com:80"))

	get := func(path string) (string, error) {
		data, err := k.client.CoreV1().RESTClient().Get().AbsPath(
			"/api/v1/namespaces/default/pods/" + path).DoRaw(t.Context())
		return string(data), err
	}
	if got, err := get("web:80/proxy/a/b"); got != "/a/b of the process" {
		t.Errorf("the proxy gets %q, %v", got, err)
	}
	if got, err := get("web/proxy/"); got != "/ of the process" {
		t.Errorf("the proxy gets %q, %v without a port", got, err)
	}
	workloadtest.Must(k.client.CoreV1().Services("default").Create(t.Context(), &corev1.Service{
		ObjectMeta: metav1.ObjectMeta{Name: "web"},
		Spec: corev1.ServiceSpec{
			Selector: map[string]string{"app": "web"},
			Ports:    []corev1.ServicePort{{Port: 8000, TargetPort: intstr.FromInt32(80)}},
		},
	}, metav1.CreateOptions{}))(t)
	workloadtest.Until(t, func(ctx context.Context) string {
		data, err := k.client.CoreV1().RESTClient().Get().AbsPath(
			"/api/v1/namespaces/default/services/web:8000/proxy/s").DoRaw(ctx)
		if string(data) != "/s of the process" {
			return fmt.Sprintf("the proxy of the service gets %q, %v", data, err)
		}
		return ""
	})
	for port, want := range map[string]string{
		"81": "--stand-in-ports=1", "82": "not a loopback address", "83": "not a loopback address",
		"84": "forward-84",
	} {
		if got, err := get("web:" + port + "/proxy/"); err == nil || !strings.Contains(
			err.Error()+got, want) {
			t.Errorf("port %s: %q, %v, want one with %q", port, got, err, want)
		}
	}

	conn := k.dial("/api/v1/namespaces/default/pods/web/portforward", url.Values{"ports": {"80"}})
	workloadtest.OK(t, conn.WriteMessage(websocket.BinaryMessage,
		[]byte("\x00GET /w HTTP/1.0\r\n\r\n")))
	if got := k.message(conn, 0, 2); !strings.HasPrefix(got, "HTTP/1.0 200") {
		t.Errorf("a websocket gets %q", got)
	}

	address := k.client.CoreV1().RESTClient().Post().Resource("pods").Namespace("default").Name("web").
		SubResource("portforward").URL()
	transport, upgrader, err := spdy.RoundTripperFor(k.RESTConfig())
	workloadtest.OK(t, err)
	overSPDY := spdy.NewDialer(upgrader, &http.Client{Transport: transport}, http.MethodPost, address)
	tunnel := workloadtest.Must(portforward.NewSPDYOverWebsocketDialer(address, k.RESTConfig()))(t)
	forwarder := func(overWebsocket bool, stop <-chan struct{}, ready chan struct{}) (
		*portforward.PortForwarder, error,
	) {
		dialer := overSPDY
		if overWebsocket {
			dialer = tunnel
		}
		return portforward.New(dialer, []string{"0:80"}, stop, ready, io.Discard, io.Discard)
	}
	for name, overWebsocket := range map[string]bool{"SPDY": false, "websocket": true} {
		t.Run(name, func(t *testing.T) {
			ctx, cancel := context.WithCancel(t.Context())
			ready := make(chan struct{})
			f := workloadtest.Must(forwarder(overWebsocket, ctx.Done(), ready))(t)
			ended := make(chan error, 1)
			go func() { ended <- f.ForwardPorts() }()
			defer func() {
				cancel()
				<-ended
			}()
			select {
			case <-ready:
			case err := <-ended:
				ended <- nil
				t.Fatal(err)
			}
			ports := workloadtest.Must(f.GetPorts())(t)
			request := workloadtest.Must(http.NewRequestWithContext(t.Context(), http.MethodGet,
				fmt.Sprintf("http://127.0.0.1:%d/x", ports[0].Local), nil))(t)
			request.Close = true
			response := workloadtest.Must(http.DefaultClient.Do(request))(t)
			defer response.Body.Close()
			if body := workloadtest.Must(io.ReadAll(response.Body))(t); string(body) !=
				"/x of the process" {
				t.Errorf("the forwarded port answers %q", body)
			}
		})
	}
}

// TestPodBehaviors has a rule for the pods of an application, and for a part of others.
func TestPodBehaviors(t *testing.T) {
	t.Parallel()
	k := startKubelet(t, func(o *server.Options) { o.PodBehaviors = true })
	workloadtest.Until(t, func(ctx context.Context) string {
		_, err := k.client.Discovery().RESTClient().Get().
			AbsPath("/apis/kinproc.dev/v1alpha1/podbehaviors").DoRaw(ctx)
		return metricsFailed(err)
	})
	apply := func(yaml string) { servertest.Apply(t, k.Server, "default", servertest.YAML(yaml)) }
	apply(`
apiVersion: kinproc.dev/v1alpha1
kind: PodBehavior
metadata: {name: broken}
spec:
  selector: {matchLabels: {app: broken}}
  set: {exit-code: "7", not-ready: "true", log: "from the rule"}
---
apiVersion: kinproc.dev/v1alpha1
kind: PodBehavior
metadata: {name: some}
spec:
  selector: {matchLabels: {app: some}}
  percent: 50
  seed: 3
  set: {not-ready: "true", start-delay: 1ms..5ms}
`)
	labelled := func(app string) func(*corev1.Pod) {
		return func(p *corev1.Pod) { p.Labels = map[string]string{"app": app} }
	}
	never := func(p *corev1.Pod) { p.Spec.RestartPolicy = corev1.RestartPolicyNever }
	nodesCreatePod(t, k.client, nodesPod("broken", labelled("broken"), never))
	nodesAwaitPod(t, k.client, "broken", func(p *corev1.Pod) bool {
		return p.Status.Phase == corev1.PodFailed &&
			p.Status.ContainerStatuses[0].State.Terminated.ExitCode == 7
	})
	k.wantLogs("broken", corev1.PodLogOptions{}, "from the rule\n")
	nodesCreatePod(t, k.client, nodesPod("own", labelled("broken"), never,
		nodesAnnotated("exit-code", "0")))
	nodesAwaitPod(t, k.client, "own", func(p *corev1.Pod) bool {
		return p.Status.Phase == corev1.PodSucceeded
	})

	const count = 20
	for i := range count {
		k.create(fmt.Sprint("some-", i), labelled("some"))
	}
	ready := func(ctx context.Context) (names []string) {
		list := workloadtest.Must(k.client.CoreV1().Pods("default").List(ctx,
			metav1.ListOptions{LabelSelector: "app=some"}))(t)
		for i := range list.Items {
			for _, c := range list.Items[i].Status.Conditions {
				if c.Type == corev1.PodReady && c.Status == corev1.ConditionTrue {
					names = append(names, list.Items[i].Name)
				}
			}
		}
		return names
	}
	var chosen []string
	workloadtest.Until(t, func(ctx context.Context) string {
		if chosen = ready(ctx); len(chosen) < count/5 || len(chosen) > count*4/5 {
			return fmt.Sprintf("%d of %d pods are ready", len(chosen), count)
		}
		return ""
	})
	if slices.Contains(chosen, "") {
		t.Error("a pod has no name")
	}
	workloadtest.OK(t, k.client.Discovery().RESTClient().Delete().
		AbsPath("/apis/kinproc.dev/v1alpha1/namespaces/default/podbehaviors/some").Do(t.Context()).Error())
	workloadtest.Until(t, func(ctx context.Context) string {
		if n := len(ready(ctx)); n != count {
			return fmt.Sprintf("%d of %d pods are ready without the rule", n, count)
		}
		return ""
	})
	err := k.client.Discovery().RESTClient().Post().
		AbsPath("/apis/kinproc.dev/v1alpha1/namespaces/default/podbehaviors").Body([]byte(
		`{"apiVersion":"kinproc.dev/v1alpha1","kind":"PodBehavior","metadata":{"name":"wrong"},`+
			`"spec":{"set":{"exit-cod":"1"}}}`)).SetHeader("Content-Type", "application/json").
		Do(t.Context()).Error()
	if !apierrors.IsInvalid(err) || !strings.Contains(err.Error(), "start-delay") {
		t.Errorf("a key that does nothing: %v", err)
	}
}

// TestKubeletReadyDelay has a pod that is ready some time after it has started.
func TestKubeletReadyDelay(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		k := startKubelet(t, servertest.InBubble)
		nodesAwait(t, k.client, 1)
		nodesCreatePod(t, k.client, nodesPod("slow", nodesAnnotated("ready-delay", "1h")))
		nodesAwaitPod(t, k.client, "slow", func(p *corev1.Pod) bool {
			return p.Status.Phase == corev1.PodRunning
		})
		began := time.Now()
		time.Sleep(59 * time.Minute)
		isReady := func() bool {
			p := workloadtest.Must(k.client.CoreV1().Pods("default").Get(t.Context(), "slow",
				metav1.GetOptions{}))(t)
			return p.Status.ContainerStatuses[0].Ready
		}
		if isReady() {
			t.Error("the pod is ready too early")
		}
		time.Sleep(time.Until(began.Add(time.Hour + time.Second)))
		if !isReady() {
			t.Error("the pod is not ready")
		}
	})
}
