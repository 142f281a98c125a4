package dashboard

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/runtime/schema"
)

func TestStateOf(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		resource, cells string
		deleted         bool
		want            state
	}{
		{"pods", "Status=Running Ready=1/1", false, ready},
		{"pods", "Status=Running Ready=0/1", false, pending},
		{"pods", "Status=Running Ready=1/1", true, terminating},
		{"pods", "Status=ContainerCreating Ready=0/1", false, pending},
		{"pods", "Status=Init:0/2 Ready=0/1", false, pending},
		{"pods", "Status=Init:Error Ready=0/1", false, failing},
		{"pods", "Status=CrashLoopBackOff Ready=0/1", false, failing},
		{"pods", "Status=ImagePullBackOff Ready=0/1", false, failing},
		{"pods", "Status=Completed Ready=0/1", false, done},
		{"deployments.apps", "Ready=2/3", false, pending},
		{"deployments.apps", "Ready=3/3", false, ready},
		{"deployments.apps", "Ready=0/0", false, ready},
		{"replicasets.apps", "Desired=3 Ready=1", false, pending},
		{"daemonsets.apps", "Desired=3 Ready=3", false, ready},
		{"jobs.batch", "Status=Complete Completions=1/1", false, done},
		{"jobs.batch", "Status=Failed Completions=0/1", false, failing},
		{"jobs.batch", "Status=Running Completions=0/1", false, pending},
		{"nodes", "Status=Ready", false, ready},
		{"nodes", "Status=NotReady", false, failing},
		{"nodes", "Status=Ready,SchedulingDisabled", false, pending},
		{"namespaces", "Status=Active", false, ready},
		{"persistentvolumeclaims", "Status=Pending", false, pending},
		{"apiservices.apiregistration.k8s.io", "Available=False", false, failing},
		{"crontabs.example.com", "Ready=True", false, ready},
		{"crontabs.example.com", "Phase=Failed", false, failing},
		{"crontabs.example.com", "Replicas=3", false, ""},
		{"configmaps", "Data=1", false, ""},
	} {
		cell := func(name string) string {
			for _, each := range strings.Fields(c.cells) {
				if n, value, _ := strings.Cut(each, "="); n == name {
					return value
				}
			}
			return ""
		}
		if got := stateOf(schema.ParseGroupResource(c.resource), cell, c.deleted); got != c.want {
			t.Errorf("%s with %s is %q, want %q", c.resource, c.cells, got, c.want)
		}
	}
}

// The walk links to files of the code and to the tour.
func TestWalkLinksToFiles(t *testing.T) {
	t.Parallel()
	script, err := os.ReadFile("page/explained.js")
	if err != nil {
		t.Fatal(err)
	}
	names := regexp.MustCompile(`"((?:chain|server|embed|docs)/[^"]+)"`).FindAllSubmatch(script, -1)
	if len(names) < 15 {
		t.Fatalf("the walk links to %d files", len(names))
	}
	for _, name := range names {
		if _, err := os.Stat(filepath.Join("..", "..", "..", string(name[1]))); err != nil {
			t.Error(err)
		}
	}
}

func TestClientOf(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		user, agent, client string
		loop                bool
	}{
		{"system:apiserver", "kube-controller-manager/v1.37.2 (kinproc)/deployment-controller",
			"deployment-controller", true},
		{"system:apiserver", "kube-controller-manager/v1.37.2/generic-garbage-collector",
			"generic-garbage-collector", true},
		{"system:kube-scheduler", "kube-scheduler/v1.37.2 (kinproc)", "kube-scheduler", true},
		{"system:kube-controller-manager", "kube-controller-manager/v1.36.3 (linux/amd64) kubernetes/abc",
			"kube-controller-manager", true},
		{"system:apiserver", "kube-controller-manager/v1.36.3 (linux/amd64) kubernetes/abc/job-controller",
			"job-controller", true},
		{"jane", "kubectl/v1.36.3 (linux/amd64) kubernetes/abc", "kubectl", false},
		{"jane", "", "", false},
	} {
		if client, loop := clientOfAgent(c.user, c.agent); client != c.client || loop != c.loop {
			t.Errorf("%q is %q, a loop %t", c.agent, client, loop)
		}
	}
}
