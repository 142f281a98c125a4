package looptest

import (
	"context"
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"slices"
	"testing"

	authorizationv1 "k8s.io/api/authorization/v1"
	certificatesv1 "k8s.io/api/certificates/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"

	"github.com/kinproc/kinproc/server"
	"github.com/kinproc/kinproc/server/internal/controllers/cluster/trustbundles"
	"github.com/kinproc/kinproc/server/internal/controllers/workloadtest"
	"github.com/kinproc/kinproc/server/servertest"
)

// trustBundleOf returns the name of the bundle that a control plane publishes.
func trustBundleOf(s *server.Server) string {
	hash := sha256.Sum256(s.RESTConfig().CAData)
	return fmt.Sprintf("kubernetes.io:kube-apiserver-serving:%x", hash[:12])
}

// trustBundles returns the names of all bundles, and checks the published one if it exists.
func trustBundles(t *testing.T, s *server.Server) []string {
	t.Helper()
	list := workloadtest.Must(workloadtest.Client(t, s).CertificatesV1().ClusterTrustBundles().
		List(t.Context(), metav1.ListOptions{}))(t)
	var names []string
	for _, b := range list.Items {
		names = append(names, b.Name)
		if b.Name == trustBundleOf(s) && b.Spec != (certificatesv1.ClusterTrustBundleSpec{
			SignerName: "kubernetes.io/kube-apiserver-serving", TrustBundle: string(s.RESTConfig().CAData),
		}) {
			t.Errorf("the bundle is %+v", b.Spec)
		}
	}
	slices.Sort(names)
	return names
}

func TestTrustBundle(t *testing.T) {
	t.Parallel()
	controllers := func(o *server.Options) { o.Controllers = []string{trustbundles.Name} }
	s := servertest.Run(t, controllers)
	own := trustBundleOf(s)
	if got := trustBundles(t, s); !slices.Equal(got, []string{own}) {
		t.Fatalf("at first, there are %q, want %s", got, own)
	}
	client := workloadtest.Client(t, s)
	api := client.CertificatesV1().ClusterTrustBundles()
	ctx := t.Context()
	first := workloadtest.Must(api.Get(ctx, own, metav1.GetOptions{}))(t)
	for _, name := range []string{"kubernetes.io:kube-apiserver-serving:old", "others"} {
		b := first.DeepCopy()
		b.ObjectMeta = metav1.ObjectMeta{Name: name}
		if name == "others" {
			b.Spec.SignerName = ""
		}
		workloadtest.Must(api.Create(ctx, b, metav1.CreateOptions{}))(t)
	}
	workloadtest.OK(t, api.Delete(ctx, own, metav1.DeleteOptions{}))
	workloadtest.Until(t, func(context.Context) string {
		if got := trustBundles(t, s); !slices.Equal(got, []string{own, "others"}) {
			return fmt.Sprintf("there are %q", got)
		}
		return ""
	})
	// The bundle that exists from the start is as if the loop had made it.
	again := workloadtest.Must(api.Get(ctx, own, metav1.GetOptions{}))(t)
	for _, b := range []*certificatesv1.ClusterTrustBundle{first, again} {
		b.UID, b.ResourceVersion, b.CreationTimestamp = "", "", metav1.Time{}
		for i := range b.ManagedFields {
			b.ManagedFields[i].Time = nil
		}
	}
	a, b := workloadtest.Must(json.Marshal(first))(t), workloadtest.Must(json.Marshal(again))(t)
	if string(a) != string(b) {
		t.Errorf("the first bundle is\n%s\nthe second one\n%s", a, b)
	}
	other := certificate(t, s)
	workloadtest.Must(api.Patch(ctx, own, types.MergePatchType,
		workloadtest.Must(json.Marshal(map[string]any{"spec": map[string]any{"trustBundle": other}}))(t),
		metav1.PatchOptions{}))(t)
	workloadtest.Until(t, func(ctx context.Context) string {
		b, err := api.Get(ctx, own, metav1.GetOptions{})
		if err != nil || b.Spec.TrustBundle != string(s.RESTConfig().CAData) {
			return fmt.Sprintf("the bundle is %+v, %v", b, err)
		}
		return ""
	})
}

// TestTrustBundleOfAnother starts from a snapshot of a control plane with other certificates, and
// resets to it.
func TestTrustBundleOfAnother(t *testing.T) {
	t.Parallel()
	controllers := func(o *server.Options) { o.Controllers = []string{trustbundles.Name} }
	origin := servertest.Run(t, controllers)
	snapshot := workloadtest.Must(origin.Snapshot(t.Context()))(t)
	fork := servertest.Run(t, controllers, func(o *server.Options) { o.From = snapshot })
	own := trustBundleOf(fork)
	if own == trustBundleOf(origin) {
		t.Fatal("the control planes have the same certificates")
	}
	workloadtest.Until(t, func(context.Context) string {
		if got := trustBundles(t, fork); !slices.Equal(got, []string{own}) {
			return fmt.Sprintf("there are %q", got)
		}
		return ""
	})
	workloadtest.OK(t, fork.Reset(t.Context(), snapshot))
	if got := trustBundles(t, fork); !slices.Equal(got, []string{own}) {
		t.Errorf("after the reset, there are %q, want %s", got, own)
	}
}

// TestTrustBundleReaders asks who may read bundles.
func TestTrustBundleReaders(t *testing.T) {
	t.Parallel()
	c, _ := shared(t)
	for verb, want := range map[string]bool{
		"get": true, "list": true, "watch": true, "create": false, "delete": false,
	} {
		review := workloadtest.Must(c.AuthorizationV1().SubjectAccessReviews().Create(t.Context(),
			&authorizationv1.SubjectAccessReview{Spec: authorizationv1.SubjectAccessReviewSpec{
				User:   "system:serviceaccount:default:default",
				Groups: []string{"system:serviceaccounts", "system:authenticated"},
				ResourceAttributes: &authorizationv1.ResourceAttributes{
					Verb: verb, Group: certificatesv1.GroupName, Resource: "clustertrustbundles",
				},
			}}, metav1.CreateOptions{}))(t)
		if review.Status.Allowed != want {
			t.Errorf("a service account may %s bundles: got %t, want %t", verb, review.Status.Allowed, want)
		}
	}
}

// certificate returns a certificate that is not in the bundle.
func certificate(t *testing.T, s *server.Server) string {
	t.Helper()
	client := workloadtest.Must(kubernetes.NewForConfig(s.RESTConfig()))(t)
	m := workloadtest.Must(client.CoreV1().ConfigMaps(metav1.NamespaceSystem).Get(t.Context(),
		"extension-apiserver-authentication", metav1.GetOptions{}))(t)
	return m.Data["requestheader-client-ca-file"]
}
