package examples_test

import (
	"context"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
	"golang.org/x/sys/unix"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
)

// labMember is the member of an etcd cluster, on a host and a disk of its own.
type labMember struct {
	*host
	member
	ended chan struct{}
}

// diskSize is more than a member needs in these tests.
const diskSize = "size=256m"

// startLabMembers starts an etcd cluster of three members in a lab.
func startLabMembers(t *testing.T, l *lab) []*labMember {
	t.Helper()
	var members []*labMember
	var cluster []string
	for i := range 3 {
		m := &labMember{host: l.connect(fmt.Sprintf("etcd-%d", i))}
		m.member = member{Name: m.host.name, Dir: filepath.Join(t.TempDir(), "etcd"),
			Client: "http://" + m.address + ":2379", Peer: "http://" + m.address + ":2380"}
		disk := filepath.Dir(m.Dir)
		if err := unix.Mount("tmpfs", disk, "tmpfs", 0, diskSize); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() {
			if err := unix.Unmount(disk, 0); err != nil {
				t.Error(err)
			}
		})
		members, cluster = append(members, m), append(cluster, m.Name+"="+m.Peer)
	}
	for _, m := range members {
		m.Cluster = strings.Join(cluster, ",")
		m.run(t)
		t.Cleanup(func() {
			_ = m.process.Process.Kill() // it may have ended
			<-m.ended
		})
	}
	return members
}

// run starts the member, for the first time or after it has ended.
func (m *labMember) run(t *testing.T) {
	t.Helper()
	m.process = m.become(m.command(t))
	if err := m.process.Start(); err != nil {
		t.Fatal(err)
	}
	ended := make(chan struct{})
	m.ended = ended
	process := m.process
	go func() {
		defer close(ended)
		_ = process.Wait() // it is killed, or its disk is full
	}()
}

// fillDisk leaves no room on the disk of the member. The function that it returns makes room again.
func (m *labMember) fillDisk(t *testing.T) (restore func()) {
	t.Helper()
	filler := filepath.Join(filepath.Dir(m.Dir), "filler")
	f, err := os.Create(filler)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	for block := make([]byte, 64<<10); len(block) > 0; {
		if _, err := f.Write(block); err != nil {
			block = block[:len(block)/2]
		}
	}
	return func() {
		if err := os.Remove(filler); err != nil {
			t.Error(err)
		}
	}
}

// leads reports whether the member is the leader of the cluster.
func (m *labMember) leads(ctx context.Context, client *clientv3.Client) (bool, error) {
	status, err := client.Status(ctx, m.Client)
	return err == nil && status.Leader == status.Header.MemberId, err
}

// labReplica is a replica at a host of a lab.
type labReplica struct {
	*host
	client     kubernetes.Interface
	kubeconfig string
	log        string // of audit events
	output     string // a file
	process    *exec.Cmd
	ended      chan struct{}
}

// startLabReplica starts a replica without waiting for it.
func startLabReplica(t *testing.T, h *host, args []string) *labReplica {
	t.Helper()
	dir := t.TempDir()
	r := &labReplica{
		host: h, kubeconfig: filepath.Join(dir, "kubeconfig"), log: filepath.Join(dir, "audit.log"),
		output: filepath.Join(dir, "output"), ended: make(chan struct{}),
	}
	output, err := os.Create(r.output)
	if err != nil {
		t.Fatal(err)
	}
	defer output.Close()
	r.process = exec.Command(os.Args[0], append([]string{
		"start", "--bind-address=0.0.0.0", "--advertise-address=" + h.address, "--name=" + h.name,
		"--data-dir=" + filepath.Join(dir, "data"), "--kubeconfig=" + r.kubeconfig,
		"--audit-log-path=" + r.log,
	}, args...)...)
	r.process.Env = append(os.Environ(), kinprocVariable+"=1", "XDG_STATE_HOME="+dir, "HOME="+dir)
	r.process.Stdout, r.process.Stderr = output, output
	if err := h.become(r.process).Start(); err != nil {
		t.Fatal(err)
	}
	go func() {
		defer close(r.ended)
		_ = r.process.Wait() // it is killed
	}()
	t.Cleanup(func() {
		_ = r.process.Process.Kill() // it may have ended
		<-r.ended
		if printed, err := os.ReadFile(r.output); t.Failed() {
			t.Logf("%s: %s%v", r.name, printed, err)
		}
	})
	return r
}

// labPatience is how long clients wait for an answer before they ask again.
const labPatience = 2 * time.Second

// dial waits until the replica is ready and makes the client. After a request that got no answer,
// it opens another connection: the system repeats what was lost in a connection after longer and
// longer pauses.
func (r *labReplica) dial(t *testing.T) {
	t.Helper()
	eventuallyIn(t, r.name, func(context.Context) (bool, error) {
		select {
		case <-r.ended:
			t.Fatalf("%s has ended", r.name)
		default:
		}
		_, err := os.Stat(r.kubeconfig)
		return err == nil, err
	})
	config, err := clientcmd.BuildConfigFromFlags("", r.kubeconfig)
	if err != nil {
		t.Fatal(err)
	}
	config.Host = "https://" + r.address + ":6443"
	config.QPS = -1
	tls, err := rest.TLSConfigFor(config)
	if err != nil {
		t.Fatal(err)
	}
	transport := &http.Transport{TLSClientConfig: tls} // not HTTP/2, which has one connection
	t.Cleanup(transport.CloseIdleConnections)
	r.client, err = kubernetes.NewForConfigAndClient(config,
		&http.Client{Transport: transport, Timeout: labPatience})
	if err != nil {
		t.Fatal(err)
	}
}
