package conformance_test

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"flag"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	batchv1 "k8s.io/api/batch/v1"
	certificatesv1 "k8s.io/api/certificates/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/kubernetes"
	corev1client "k8s.io/client-go/kubernetes/typed/core/v1"

	"github.com/kinproc/kinproc/server"
	"github.com/kinproc/kinproc/server/servertest"
)

var controllerManager = flag.String("record-loops-of", "",
	"path of a kube-controller-manager; TestLoopsAsKubeControllerManager records what it does")

const (
	loopsRecording  = "testdata/loops.txt.gz"
	loopsExceptions = "testdata/loops-exceptions.txt"
	// quiet is how long nothing changes at the end of a recording. The slowest loop, that of
	// autoscalers, works every 15 s.
	quiet = 40 * time.Second
	// restful is how long no object may be written at the end of the scenario.
	restful = 16 * time.Second
)

// TestLoopsAsKubeControllerManager does on a control plane what testdata/loops and the function
// play say, and compares each field of each object, and the events, with a recording of
// kube-controller-manager v1.37.2, which did the same work for the same control plane with its own
// loops switched off. testdata/loops-exceptions.txt lists the intended differences with the
// reasons.
func TestLoopsAsKubeControllerManager(t *testing.T) {
	t.Parallel()
	if *controllerManager != "" {
		recordLoops(t)
		return
	}
	want := expectedFacts(t, loopsRecording, loopsExceptions)
	p := &played{T: t}
	p.on(servertest.Run(t, servertest.Workloads, twoNodes))
	p.play()
	p.comesTo(want)
	before := p.versions()
	<-time.After(restful)
	for object, version := range p.versions() {
		if before[object] != version {
			t.Errorf("%s was written although nothing happened", object)
		}
	}
}

// TestLoopsAcrossRestarts plays the same, but whenever the loops have work to do, the control plane
// ends and another one goes on. Only objects are compared: an event that was not written when the
// control plane ended is lost, as in kube-controller-manager.
func TestLoopsAcrossRestarts(t *testing.T) {
	t.Parallel()
	want := expectedFacts(t, loopsRecording, loopsExceptions)
	maps.DeleteFunc(want, func(fact string, _ bool) bool { return isEvent(fact) })
	dir := t.TempDir()
	run := func() *server.Server {
		return servertest.Run(t, servertest.Workloads, twoNodes,
			func(o *server.Options) { o.DataDir = dir })
	}
	p := &played{T: t}
	p.on(run())
	p.interrupt = func() {
		p.ok(p.server.Stop(t.Context()))
		p.on(run())
	}
	p.play()
	p.comesTo(want)
}

func twoNodes(o *server.Options) { o.SimulatedNodes = 2 }

// recordLoops writes what a kube-controller-manager does. The scheduler and the nodes are ours.
func recordLoops(t *testing.T) {
	t.Helper()
	s := servertest.Run(t, twoNodes, func(o *server.Options) {
		o.Controllers, o.DataDir = []string{"kube-scheduler"}, t.TempDir()
	})
	pki := func(file string) string { return filepath.Join(s.Dir(), "pki", file) }
	ctx, cancel := context.WithCancel(t.Context())
	command := exec.CommandContext(ctx, *controllerManager,
		"--kubeconfig="+servertest.Kubeconfig(t, s.RESTConfig()), "--controllers=*",
		"--leader-elect=false", "--secure-port=0", "--kube-api-qps=1000", "--kube-api-burst=1000",
		"--cluster-signing-cert-file="+pki("ca.crt"), "--cluster-signing-key-file="+pki("ca.key"),
		"--root-ca-file="+pki("ca.crt"), "--service-account-private-key-file="+pki("sa.key"))
	command.Stderr = os.Stderr
	command.Cancel = func() error { return command.Process.Signal(os.Interrupt) }
	if err := command.Start(); err != nil {
		cancel()
		t.Fatal(err)
	}
	defer func() {
		cancel()
		_ = command.Wait() // it was interrupted
	}()
	p := &played{T: t}
	p.on(s)
	p.play()
	recorded, since := p.state(), time.Now()
	p.ok(wait.PollUntilContextCancel(ctx, time.Second, false, func(context.Context) (bool, error) {
		if now := p.state(); !maps.Equal(now, recorded) {
			recorded, since = now, time.Now()
		}
		return time.Since(since) >= quiet, nil
	}))
	recorded.record(t, loopsRecording)
}

// played is a control plane on which a scenario is played.
type played struct {
	*testing.T
	client    kubernetes.Interface
	server    *server.Server
	interrupt func() // what happens while the loops work, if it is not nil
}

// on says which server is the control plane.
func (p *played) on(s *server.Server) {
	p.server, p.client = s, kubernetes.NewForConfigOrDie(s.RESTConfig())
}

// work is called when the loops have work to do.
func (p *played) work() {
	if p.interrupt != nil {
		p.interrupt()
	}
}

// comesTo waits until the objects, and the events if there are any in want, are as want says.
func (p *played) comesTo(want facts) {
	p.Helper()
	p.work()
	events := slices.ContainsFunc(slices.Collect(maps.Keys(want)), isEvent)
	var differences []string
	err := wait.PollUntilContextTimeout(p.Context(), 200*time.Millisecond, quiet, true,
		func(context.Context) (bool, error) {
			got := p.state()
			maps.DeleteFunc(got, func(fact string, _ bool) bool { return !events && isEvent(fact) })
			differences = want.differences(got)
			return len(differences) == 0, nil
		})
	if err == nil {
		return
	}
	for _, line := range differences {
		p.Error(line)
	}
}

// loopsNamespace is where most objects of the scenario are.
const loopsNamespace = "loops"

// play plays the scenario. It waits for each step, so that the events do not depend on who is
// faster.
func (p *played) play() {
	p.Helper()
	ctx := p.Context()
	p.await("nodes", func(ctx context.Context) (bool, error) {
		nodes, err := p.client.CoreV1().Nodes().List(ctx, metav1.ListOptions{})
		// The scheduler would write an event about the taints that nodes have at first.
		return err == nil && len(nodes.Items) == 2 &&
			!slices.ContainsFunc(nodes.Items, func(n corev1.Node) bool {
				return len(n.Spec.Taints) > 0
			}), err
	})
	p.apply("00-namespace.yaml")
	p.await("the account of pods", func(ctx context.Context) (bool, error) {
		_, err := p.client.CoreV1().ServiceAccounts(loopsNamespace).Get(ctx, "default",
			metav1.GetOptions{})
		return err == nil, err
	})

	p.apply("10-deployment.yaml")
	rolledOut := func(replicas int32) {
		p.Helper()
		p.await("the rollout", func(ctx context.Context) (bool, error) {
			d, err := p.client.AppsV1().Deployments(loopsNamespace).Get(ctx, "web", metav1.GetOptions{})
			if err != nil {
				return false, err
			}
			progress := slices.IndexFunc(d.Status.Conditions, func(c appsv1.DeploymentCondition) bool {
				return c.Type == appsv1.DeploymentProgressing && c.Reason == "NewReplicaSetAvailable"
			})
			return progress >= 0 && d.Status.ObservedGeneration == d.Generation &&
				d.Status.AvailableReplicas == replicas && d.Status.UpdatedReplicas == replicas &&
				d.Status.Replicas == replicas, nil
		})
	}
	change := func(patch string) {
		p.Helper()
		_, err := p.client.AppsV1().Deployments(loopsNamespace).Patch(ctx, "web",
			types.StrategicMergePatchType, []byte(patch), metav1.PatchOptions{FieldManager: "conformance"})
		p.ok(err)
	}
	image := func(image string) string {
		return `{"spec":{"template":{"spec":{"containers":[{"name":"web","image":"` + image + `"}]}}}}`
	}
	rolledOut(3)
	p.apply("11-disruption.yaml")
	change(image("web:2"))
	rolledOut(3)
	change(image("web:1"))
	rolledOut(3)
	change(`{"spec":{"replicas":4}}`)
	rolledOut(4)

	p.apply("20-sets.yaml")
	replicas := func(n int32) {
		p.Helper()
		p.await("the StatefulSet", func(ctx context.Context) (bool, error) {
			s, err := p.client.AppsV1().StatefulSets(loopsNamespace).Get(ctx, "db", metav1.GetOptions{})
			return err == nil && s.Status.ObservedGeneration == s.Generation &&
				s.Status.Replicas == n && s.Status.AvailableReplicas == n, err
		})
	}
	replicas(3)
	_, err := p.client.AppsV1().StatefulSets(loopsNamespace).Patch(ctx, "db", types.MergePatchType,
		[]byte(`{"spec":{"replicas":1}}`), metav1.PatchOptions{FieldManager: "conformance"})
	p.ok(err)
	replicas(1)
	onAllNodes := func() {
		p.Helper()
		p.await("the DaemonSet", func(ctx context.Context) (bool, error) {
			s, err := p.client.AppsV1().DaemonSets(loopsNamespace).Get(ctx, "agent", metav1.GetOptions{})
			return err == nil && s.Status.ObservedGeneration == s.Generation &&
				s.Status.UpdatedNumberScheduled == 2 && s.Status.NumberAvailable == 2, err
		})
	}
	onAllNodes()
	_, err = p.client.AppsV1().DaemonSets(loopsNamespace).Patch(ctx, "agent",
		types.StrategicMergePatchType,
		[]byte(`{"spec":{"template":{"spec":{"containers":[{"name":"agent","image":"agent:2"}]}}}}`),
		metav1.PatchOptions{FieldManager: "conformance"})
	p.ok(err)
	onAllNodes()
	controllers := func() corev1client.ReplicationControllerInterface {
		return p.client.CoreV1().ReplicationControllers(loopsNamespace)
	}
	p.await("the ReplicationController", func(ctx context.Context) (bool, error) {
		c, err := controllers().Get(ctx, "old", metav1.GetOptions{})
		return err == nil && c.Status.AvailableReplicas == 2, err
	})
	p.ok(controllers().Delete(ctx, "old",
		metav1.DeleteOptions{PropagationPolicy: new(metav1.DeletePropagationOrphan)}))
	p.await("the orphans", func(ctx context.Context) (bool, error) {
		_, err := controllers().Get(ctx, "old", metav1.GetOptions{})
		return apierrors.IsNotFound(err), ignoreNotFound(err)
	})

	p.apply("30-jobs.yaml")
	for name, condition := range map[string]batchv1.JobConditionType{
		"indexed": batchv1.JobComplete, "failing": batchv1.JobFailed, "suspended": batchv1.JobSuspended,
	} {
		p.await("the job "+name, func(ctx context.Context) (bool, error) {
			j, err := p.client.BatchV1().Jobs(loopsNamespace).Get(ctx, name, metav1.GetOptions{})
			return err == nil && slices.ContainsFunc(j.Status.Conditions,
				func(c batchv1.JobCondition) bool {
					return c.Type == condition && c.Status == corev1.ConditionTrue
				}), err
		})
	}
	p.await("the forgotten job", func(ctx context.Context) (bool, error) {
		_, err := p.client.BatchV1().Jobs(loopsNamespace).Get(ctx, "forgotten", metav1.GetOptions{})
		return apierrors.IsNotFound(err), ignoreNotFound(err)
	})

	p.apply("40-network.yaml")
	p.apply("45-volume.yaml")
	p.await("the volume", func(ctx context.Context) (bool, error) {
		v, err := p.client.CoreV1().PersistentVolumes().Get(ctx, "disk", metav1.GetOptions{})
		return err == nil && v.Status.Phase == corev1.VolumeAvailable, err
	})
	p.apply("50-cluster.yaml")
	p.certificate()

	p.apply("60-dying.yaml")
	p.ok(p.client.CoreV1().Namespaces().Delete(ctx, "dying", metav1.DeleteOptions{}))
}

// certificate requests a client certificate and approves the request.
func (p *played) certificate() {
	p.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	p.ok(err)
	request, err := x509.CreateCertificateRequest(rand.Reader, &x509.CertificateRequest{
		Subject: pkix.Name{CommonName: "jane"},
	}, key)
	p.ok(err)
	requests := p.client.CertificatesV1().CertificateSigningRequests()
	made, err := requests.Create(p.Context(), &certificatesv1.CertificateSigningRequest{
		ObjectMeta: metav1.ObjectMeta{Name: "jane"},
		Spec: certificatesv1.CertificateSigningRequestSpec{
			Request:    pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE REQUEST", Bytes: request}),
			SignerName: certificatesv1.KubeAPIServerClientSignerName,
			Usages:     []certificatesv1.KeyUsage{certificatesv1.UsageClientAuth},
		},
	}, metav1.CreateOptions{})
	p.ok(err)
	made.Status.Conditions = []certificatesv1.CertificateSigningRequestCondition{{
		Type: certificatesv1.CertificateApproved, Status: corev1.ConditionTrue, Reason: "Test",
	}}
	_, err = requests.UpdateApproval(p.Context(), "jane", made, metav1.UpdateOptions{})
	p.ok(err)
}

func (p *played) apply(file string) {
	p.Helper()
	servertest.Apply(p, p.server, loopsNamespace,
		servertest.Files(filepath.Join("testdata", "loops", file)))
}

func (p *played) ok(err error) {
	p.Helper()
	if err != nil {
		p.Fatal(err)
	}
}

// await waits until done returns true. An object that done gets may not exist yet.
func (p *played) await(what string, done wait.ConditionWithContextFunc) {
	p.Helper()
	p.work()
	if err := wait.PollUntilContextTimeout(p.Context(), 20*time.Millisecond, time.Minute, true,
		func(ctx context.Context) (bool, error) {
			ok, err := done(ctx)
			return ok && err == nil, ignoreNotFound(err)
		}); err != nil {
		p.Fatalf("%s: %v", what, err)
	}
}

func ignoreNotFound(err error) error {
	if apierrors.IsNotFound(err) {
		return nil
	}
	return err
}
