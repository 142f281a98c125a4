package looptest

import (
	"context"
	"net/http"
	"path"
	"slices"
	"sync"
	"testing"

	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/cache"

	"github.com/kinproc/kinproc/server"
	"github.com/kinproc/kinproc/server/internal/controllers/cluster/clusterroleaggregation"
	"github.com/kinproc/kinproc/server/internal/controllers/workloadtest"
	"github.com/kinproc/kinproc/server/servertest"
)

// clusterRoleAggregation is a control plane whose loops are those that a test starts.
type clusterRoleAggregation struct {
	*testing.T
	server *server.Server
	client kubernetes.Interface
	// applied has the names of the roles that loops have applied, or have been refused to.
	applied *sync.Map
}

// clusterRoleTransport stores the names of the roles that are applied, after each answer.
type clusterRoleTransport struct {
	next    http.RoundTripper
	applied *sync.Map
}

// RoundTrip implements http.RoundTripper.
func (t clusterRoleTransport) RoundTrip(r *http.Request) (*http.Response, error) {
	response, err := t.next.RoundTrip(r)
	if r.Method == http.MethodPatch {
		t.applied.Store(path.Base(r.URL.Path), true)
	}
	return response, err
}

func startClusterRoleAggregation(t *testing.T) clusterRoleAggregation {
	t.Helper()
	s := servertest.Run(t, servertest.WithoutControllers)
	return clusterRoleAggregation{t, s, workloadtest.Client(t, s), &sync.Map{}}
}

// start starts the loop. The loop does not learn of what happens in meanwhile before release is
// called. Stop may be called twice.
func (c clusterRoleAggregation) start(meanwhile func()) (release, stop func()) {
	c.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	d, _ := workloadtest.Dependencies(c.client)
	roles := d.Informer(&rbacv1.ClusterRole{})
	valve := workloadtest.Valve(c.T, roles)
	config := c.server.RESTConfig()
	config.Wrap(func(rt http.RoundTripper) http.RoundTripper {
		return clusterRoleTransport{rt, c.applied}
	})
	var err error
	d.Client, err = kubernetes.NewForConfig(config)
	workloadtest.OK(c.T, err)
	d.Informers.StartWithContext(ctx)
	if !cache.WaitFor(c.Context(), "", roles.HasSyncedChecker()) {
		c.Fatal("the informer did not sync")
	}
	valve.Lock()
	release = sync.OnceFunc(valve.Unlock)
	meanwhile()
	end := workloadtest.Start(c.T, d, clusterroleaggregation.Loop())
	stop = sync.OnceFunc(func() {
		cancel()
		release()
		end()
	})
	c.Cleanup(stop)
	return release, stop
}

// run starts the loop and returns what stops it.
func (c clusterRoleAggregation) run() (stop func()) {
	c.Helper()
	release, stop := c.start(func() {})
	release()
	return stop
}

// role creates a cluster role that allows to get some resources.
func (c clusterRoleAggregation) role(name, label string, resources ...string) {
	c.Helper()
	r := &rbacv1.ClusterRole{ObjectMeta: metav1.ObjectMeta{
		Name: name, Labels: map[string]string{label: ""},
	}}
	for _, resource := range resources {
		r.Rules = append(r.Rules, rbacv1.PolicyRule{
			Verbs: []string{"get"}, APIGroups: []string{""}, Resources: []string{resource},
		})
	}
	workloadtest.Must(c.client.RbacV1().ClusterRoles().Create(c.Context(), r,
		metav1.CreateOptions{}))(c.T)
}

// sum creates a cluster role that aggregates those with a label.
func (c clusterRoleAggregation) sum(name, label, of string) {
	c.Helper()
	workloadtest.Must(c.client.RbacV1().ClusterRoles().Create(c.Context(), &rbacv1.ClusterRole{
		ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{label: ""}},
		AggregationRule: &rbacv1.AggregationRule{
			ClusterRoleSelectors: []metav1.LabelSelector{{MatchLabels: map[string]string{of: ""}}},
		},
	}, metav1.CreateOptions{}))(c.T)
}

func (c clusterRoleAggregation) delete(names ...string) {
	c.Helper()
	for _, name := range names {
		workloadtest.OK(c.T, c.client.RbacV1().ClusterRoles().Delete(c.Context(), name,
			metav1.DeleteOptions{}))
	}
}

// expect waits until a cluster role allows to get some resources, in this order.
func (c clusterRoleAggregation) expect(name string, want ...string) {
	c.Helper()
	workloadtest.Await(c.T, name, func(ctx context.Context) (*rbacv1.ClusterRole, error) {
		return c.client.RbacV1().ClusterRoles().Get(ctx, name, metav1.GetOptions{})
	}, func(r *rbacv1.ClusterRole) bool {
		var got []string
		for _, rule := range r.Rules {
			got = append(got, rule.Resources...)
		}
		return slices.Equal(got, want) && r.AggregationRule != nil
	})
}

func TestClusterRoleAggregation(t *testing.T) {
	t.Parallel()
	c := startClusterRoleAggregation(t)
	c.role("b", "low", "pods", "services")
	c.role("a", "low", "secrets", "pods")
	c.role("other", "none", "nodes")
	c.sum("lower", "high", "low")
	c.sum("upper", "none", "high")
	c.run()
	c.expect("lower", "secrets", "pods", "services")
	c.expect("upper", "secrets", "pods", "services")
	c.role("c", "low", "events")
	c.expect("upper", "secrets", "pods", "services", "events")
	// Rules that somebody else writes do not stay.
	workloadtest.Must(c.client.RbacV1().ClusterRoles().Patch(t.Context(), "lower",
		types.MergePatchType, []byte(`{"rules":[{"verbs":["*"],"apiGroups":["*"],"resources":["*"]}]}`),
		metav1.PatchOptions{}))(t)
	c.expect("lower", "secrets", "pods", "services", "events")
	c.delete("a", "b", "c")
	c.expect("upper")
}

// TestClusterRoleAggregationRestart changes the roles while the loop does not run.
func TestClusterRoleAggregationRestart(t *testing.T) {
	t.Parallel()
	c := startClusterRoleAggregation(t)
	c.role("a", "low", "pods")
	c.role("b", "low", "secrets")
	c.sum("kept", "none", "low")
	c.sum("recreated", "none", "low")
	stop := c.run()
	c.expect("kept", "pods", "secrets")
	c.expect("recreated", "pods", "secrets")
	stop()
	c.delete("a", "recreated")
	c.role("c", "low", "events")
	c.role("d", "lower", "services")
	c.sum("recreated", "none", "lower")
	c.run()
	c.expect("kept", "secrets", "events")
	c.expect("recreated", "services")
}

// TestClusterRoleAggregationDeleted deletes a role, and recreates another one, before the loop
// learns of it.
func TestClusterRoleAggregationDeleted(t *testing.T) {
	t.Parallel()
	c := startClusterRoleAggregation(t)
	c.role("a", "low", "pods")
	c.role("b", "lower", "secrets")
	c.sum("deleted", "none", "low")
	c.sum("recreated", "none", "low")
	c.sum("kept", "none", "low")
	release, _ := c.start(func() {
		c.delete("deleted", "recreated")
		c.sum("recreated", "none", "lower")
	})
	for _, name := range []string{"deleted", "recreated"} {
		workloadtest.Until(t, func(context.Context) string {
			if _, ok := c.applied.Load(name); !ok {
				return name + " was not applied"
			}
			return ""
		})
	}
	release()
	c.expect("kept", "pods")
	c.expect("recreated", "secrets")
	if _, err := c.client.RbacV1().ClusterRoles().Get(t.Context(), "deleted",
		metav1.GetOptions{}); !apierrors.IsNotFound(err) {
		t.Errorf("get the deleted role: %v", err)
	}
}
