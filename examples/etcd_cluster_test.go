package examples_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"net/url"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"testing"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
	etcd "go.etcd.io/etcd/server/v3/embed"
	"go.uber.org/zap"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/kubernetes"

	"github.com/kinproc/kinproc/server"
	"github.com/kinproc/kinproc/server/servertest"
)

// memberVariable makes the test binary act as the member of an etcd cluster, which a test can kill.
// It has the member's name, directory, URLs and cluster.
const memberVariable = "KINPROC_TEST_ETCD_MEMBER"

// runMember runs the member of an etcd cluster until it fails.
func runMember(value string) error {
	var m member
	if err := json.Unmarshal([]byte(value), &m); err != nil {
		return err
	}
	client, err := url.Parse(m.Client)
	if err != nil {
		return err
	}
	peer, err := url.Parse(m.Peer)
	if err != nil {
		return err
	}
	c := etcd.NewConfig()
	c.Name, c.Dir, c.InitialCluster = m.Name, m.Dir, m.Cluster
	c.ZapLoggerBuilder = etcd.NewZapLoggerBuilder(zap.NewNop())
	c.ListenClientUrls, c.ListenPeerUrls = []url.URL{*client}, []url.URL{*peer}
	c.AdvertiseClientUrls, c.AdvertisePeerUrls = c.ListenClientUrls, c.ListenPeerUrls
	e, err := etcd.StartEtcd(c)
	if err != nil {
		return err
	}
	// The pipe ends with the parent.
	go func() {
		_, _ = io.Copy(io.Discard, os.Stdin)
		os.Exit(0)
	}()
	return <-e.Err()
}

// member is the member of an etcd cluster.
type member struct {
	Name, Dir, Client, Peer, Cluster string

	process *exec.Cmd
}

// startEtcdCluster starts an etcd cluster of three members.
func startEtcdCluster(t *testing.T) []*member {
	t.Helper()
	var members []*member
	var cluster []string
	var held []net.Listener // all of them, so that the ports differ
	free := func() string {
		l := listenAside(t)
		held = append(held, l)
		return "http://" + l.Addr().String()
	}
	for i := range 3 {
		m := &member{Name: fmt.Sprint("member", i), Dir: t.TempDir(), Client: free(), Peer: free()}
		members, cluster = append(members, m), append(cluster, m.Name+"="+m.Peer)
	}
	for _, l := range held {
		if err := l.Close(); err != nil {
			t.Fatal(err)
		}
	}
	for _, m := range members {
		m.Cluster = strings.Join(cluster, ",")
		m.process = m.command(t)
		if err := m.process.Start(); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { m.kill(t) })
	}
	return members
}

// command returns the command that runs the member until this process ends.
func (m *member) command(t *testing.T) *exec.Cmd {
	t.Helper()
	config, err := json.Marshal(m)
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command(os.Args[0])
	cmd.Env = append(os.Environ(), memberVariable+"="+string(config))
	if _, err := cmd.StdinPipe(); err != nil {
		t.Fatal(err)
	}
	return cmd
}

func (m *member) kill(t *testing.T) {
	t.Helper()
	if err := m.process.Process.Kill(); err != nil && !errors.Is(err, os.ErrProcessDone) {
		t.Error(err)
	}
	_ = m.process.Wait() // says that it was killed, or that it is gone already
}

// listenAside listens at a port that is not one of those that the system gives to who asks for any
// port. So no other test gets it between the end of the listener and its use.
func listenAside(t *testing.T) net.Listener {
	t.Helper()
	const first, last = 10_000, 30_000
	for {
		l, err := net.Listen("tcp", fmt.Sprintf("127.0.0.1:%d", first+rand.IntN(last-first)))
		if err == nil {
			return l
		}
		if !errors.Is(err, syscall.EADDRINUSE) {
			t.Fatal(err)
		}
	}
}

// etcdClient returns a client of the members, and their endpoints.
func etcdClient(t *testing.T, members []*member) (client *clientv3.Client, endpoints []string) {
	t.Helper()
	for _, m := range members {
		endpoints = append(endpoints, m.Client)
	}
	client, err := clientv3.New(clientv3.Config{Endpoints: endpoints, Logger: zap.NewNop()})
	if err != nil {
		t.Fatal(err)
	}
	return client, endpoints
}

// leader returns the leader, as soon as there is one.
func leader(t *testing.T, members []*member) *member {
	t.Helper()
	client, _ := etcdClient(t, members)
	defer client.Close()
	var leader *member
	if err := wait.PollUntilContextTimeout(t.Context(), 10*time.Millisecond, time.Minute, true,
		func(ctx context.Context) (bool, error) {
			for _, m := range members {
				status, err := client.Status(ctx, m.Client)
				if err == nil && status.Leader == status.Header.MemberId {
					leader = m
				}
			}
			return leader != nil, nil
		}); err != nil {
		t.Fatal(err)
	}
	return leader
}

// TestEtcdLeaderDies kills the leader of an external etcd cluster while clients write. Every write
// that was acknowledged must be there, and no request may wait as long as etcd itself would let it.
func TestEtcdLeaderDies(t *testing.T) {
	t.Parallel()
	members := startEtcdCluster(t)
	leader(t, members)
	var endpoints []string
	for _, m := range members {
		endpoints = append(endpoints, m.Client)
	}
	s := servertest.Run(t, func(o *server.Options) { o.EtcdServers = endpoints })
	client := kubernetes.NewForConfigOrDie(s.RESTConfig()).CoreV1().
		ConfigMaps(metav1.NamespaceDefault)
	acknowledged := map[string]bool{}
	write := func(ctx context.Context) error {
		made, err := client.Create(ctx,
			&corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{GenerateName: "written-"}},
			metav1.CreateOptions{})
		if err == nil {
			acknowledged[made.Name] = true
		}
		return err
	}
	// On a busy machine, the cluster may have another leader at any time, and lose a write then.
	writeMore := func() {
		t.Helper()
		for enough := len(acknowledged) + 20; len(acknowledged) < enough; {
			eventually(t, func() error { return write(t.Context()) })
		}
	}
	writeMore()

	leader(t, members).kill(t)
	killed := time.Now()
	for lost := 0; ; lost++ {
		// etcd waits for seven seconds.
		ctx, cancel := context.WithTimeout(t.Context(), 6*time.Second)
		err := write(ctx)
		ended := ctx.Err()
		cancel()
		if ended != nil {
			t.Fatalf("a write got no answer: %v", err)
		}
		if err == nil {
			t.Logf("writes went on after %v, %d were lost", time.Since(killed), lost)
			break
		}
	}
	writeMore()
	list, err := client.List(t.Context(), metav1.ListOptions{})
	if err != nil {
		t.Fatal(err)
	}
	for _, found := range list.Items {
		delete(acknowledged, found.Name)
	}
	if len(acknowledged) > 0 {
		t.Errorf("%d acknowledged writes are gone", len(acknowledged))
	}
}
