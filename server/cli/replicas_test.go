package cli_test

import (
	"context"
	"path/filepath"
	"testing"
	"time"

	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"

	"github.com/kinproc/kinproc/embed"
)

// replicas are programs that share an etcd and a directory of keys.
type replicas struct {
	t    *testing.T
	etcd string
	dir  string
}

func newReplicas(t *testing.T) *replicas {
	t.Helper()
	e, err := embed.Start(t.Context(), embed.Options{Ephemeral: true, ListenClient: true})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := e.Stop(context.WithoutCancel(t.Context())); err != nil {
			t.Error(err)
		}
	})
	return &replicas{t, e.Endpoints()[0], t.TempDir()}
}

// start starts a replica that advertises an address.
func (r *replicas) start(address string) *program {
	r.t.Helper()
	return startProgram(r.t, filepath.Join(r.dir, address), "--etcd-servers="+r.etcd,
		"--pki-dir="+filepath.Join(r.dir, "pki"), "--advertise-address="+address)
}

// await waits until done returns true.
func (r *replicas) await(what string, done func(ctx context.Context) (bool, error)) {
	r.t.Helper()
	if err := wait.PollUntilContextTimeout(r.t.Context(), 10*time.Millisecond, time.Minute, true,
		func(ctx context.Context) (bool, error) {
			ok, err := done(ctx)
			if err != nil {
				r.t.Logf("%s: %v", what, err)
			}
			return ok, nil
		}); err != nil {
		r.t.Fatalf("%s: %v", what, err)
	}
}

// awaitLoops makes a namespace, and waits for the service account that a control loop makes in it.
func (r *replicas) awaitLoops(client kubernetes.Interface, name string) {
	r.t.Helper()
	ns := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name}}
	if _, err := client.CoreV1().Namespaces().Create(r.t.Context(), ns,
		metav1.CreateOptions{}); err != nil {
		r.t.Fatal(err)
	}
	r.await("control loops", func(ctx context.Context) (bool, error) {
		_, err := client.CoreV1().ServiceAccounts(name).Get(ctx, "default", metav1.GetOptions{})
		if apierrors.IsNotFound(err) {
			return false, nil
		}
		return err == nil, err
	})
}

// awaitAddresses waits until the service default/kubernetes leads to the addresses.
func (r *replicas) awaitAddresses(client kubernetes.Interface, wanted ...string) {
	r.t.Helper()
	r.await("endpoints", func(ctx context.Context) (bool, error) {
		list, err := client.DiscoveryV1().EndpointSlices(metav1.NamespaceDefault).List(ctx,
			metav1.ListOptions{LabelSelector: discoveryv1.LabelServiceName + "=kubernetes"})
		if err != nil {
			return false, err
		}
		is := sets.New[string]()
		for _, slice := range list.Items {
			for _, endpoint := range slice.Endpoints {
				is.Insert(endpoint.Addresses...)
			}
		}
		return is.Equal(sets.New(wanted...)), nil
	})
}

// withCredentialsOf returns a client of p with the credentials, and the trust, of a client of
// other.
func withCredentialsOf(t *testing.T, other, p *program) kubernetes.Interface {
	t.Helper()
	load := func(p *program) *rest.Config {
		config, err := clientcmd.BuildConfigFromFlags("", p.kubeconfig)
		if err != nil {
			t.Fatal(err)
		}
		return config
	}
	config := load(other)
	config.Host = load(p).Host
	client, err := kubernetes.NewForConfig(config)
	if err != nil {
		t.Fatal(err)
	}
	return client
}

// TestReplicas runs two programs on one etcd, and kills the one that runs the control loops.
func TestReplicas(t *testing.T) {
	t.Parallel()
	r := newReplicas(t)
	first := r.start("10.9.0.1")
	r.awaitLoops(first.client(), "one")
	second := r.start("10.9.0.2")
	client := second.client()
	r.awaitAddresses(client, "10.9.0.1", "10.9.0.2")

	// Clients go from one to the other, with certificates and with tokens.
	elsewhere := withCredentialsOf(t, first, second)
	token, err := elsewhere.CoreV1().ServiceAccounts("one").CreateToken(t.Context(), "default",
		&authenticationv1.TokenRequest{}, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	review, err := first.client().AuthenticationV1().TokenReviews().Create(t.Context(),
		&authenticationv1.TokenReview{
			Spec: authenticationv1.TokenReviewSpec{Token: token.Status.Token},
		}, metav1.CreateOptions{})
	if err != nil || !review.Status.Authenticated {
		t.Errorf("the first replica does not know the token of the second: %+v, %v", review, err)
	}

	killed := time.Now()
	first.kill()
	r.awaitLoops(client, "two")
	t.Logf("the control loops went on after %v", time.Since(killed))

	third := r.start("10.9.0.3")
	third.client() // waits until it is ready
	r.awaitLoops(withCredentialsOf(t, second, third), "three")
}
