package examples_test

import (
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/kinproc/kinproc/examples/kubectl"
	"github.com/kinproc/kinproc/server"
	"github.com/kinproc/kinproc/server/servertest"
)

// TestShop installs an application of two dozen objects with Helm, which waits until all of it is
// ready, and then uses it as a developer would.
func TestShop(t *testing.T) {
	t.Parallel()
	process := start(t, t.TempDir(), "shop", "-listen", "127.0.0.1:0")
	var address string
	process.eventually(func() error {
		printed, err := os.ReadFile(process.stdout)
		if err != nil {
			return err
		}
		words := strings.Fields(string(printed))
		if len(words) != 3 {
			return fmt.Errorf("the process has printed %q", printed)
		}
		address = words[2]
		return nil
	})
	_, port, err := net.SplitHostPort(address)
	if err != nil {
		t.Fatal(err)
	}
	k := kubectl.New(t, servertest.Run(t, patient, servertest.Workloads, func(o *server.Options) {
		o.SimulatedMetrics, o.LoadBalancerRange = true, "192.0.2.0/24"
		o.StandInPorts = []string{port}
	}))
	helm := buildHelm(t)
	runHelm(t, k, helm, "install", "shop", filepath.Join("shop", "chart"), "--wait", "--timeout=5m",
		"--set=standIn="+address)

	const installed = "serviceaccounts,configmaps,secrets,services,deployments,statefulsets,jobs," +
		"cronjobs,ingresses,networkpolicies,poddisruptionbudgets,horizontalpodautoscalers,roles,rolebindings"
	list := k.Run("get", installed, "-l=app.kubernetes.io/managed-by=Helm", "-o=name")
	if n := len(strings.Fields(list)); n < 24 {
		t.Errorf("Helm has installed %d objects:\n%s", n, list)
	}
	if got := k.Run("get", "service", "web",
		"-o=jsonpath={.status.loadBalancer.ingress[0].ip}"); got != "192.0.2.2" {
		t.Errorf("the service has the address %q", got)
	}
	eventually(t, func() error {
		got := k.Run("get", "ingress", "web", "-o=jsonpath={.status.loadBalancer.ingress[0].ip}")
		if got != "192.0.2.1" {
			return fmt.Errorf("the ingress has the address %q", got)
		}
		return nil
	})

	// top, logs, exec and the process that stands in
	var top string
	eventually(t, func() (err error) {
		if top, err = k.Try("top", "pods", "db-0", "--no-headers"); err != nil {
			return err
		}
		_, err = k.Try("top", "nodes")
		return err
	})
	if words := strings.Fields(top); len(words) != 3 || words[1] != "80m" || words[2] != "300Mi" {
		t.Errorf("kubectl top prints %q", top)
	}
	if got := k.Run("logs", "deployment/web", "--tail=1"); !strings.Contains(got, "GET /orders 200 #") {
		t.Errorf("the web server logs %q", got)
	}
	if got := k.Run("logs", "job/seed"); got != "3 orders\n" {
		t.Errorf("the job logs %q", got)
	}
	if got := k.Run("exec", "db-0", "--", "psql", "-c", "select count(*) from orders"); got !=
		"3 rows\n" {
		t.Errorf("the database answers %q", got)
	}
	pod := k.Run("get", "pods", "-l=app=api", "-o=jsonpath={.items[0].metadata.name}")
	if got := k.Run("get", "--raw", "/api/v1/namespaces/default/pods/"+pod+":80/proxy/orders"); got !=
		"GET /orders: three orders\n" {
		t.Errorf("the process answers %q", got)
	}

	// The autoscaler follows the load, 80m for each pod.
	replicas := func(want string) {
		t.Helper()
		k.Run("wait", "deployment/web", "--for=jsonpath={.status.readyReplicas}="+want, "--timeout=60s")
	}
	k.Run("annotate", "deployment", "web", "--overwrite", "kinproc.dev/cpu=400m")
	replicas("5")
	k.Run("annotate", "deployment", "web", "--overwrite", "kinproc.dev/cpu=100m")
	replicas("2")
	runHelm(t, k, helm, "uninstall", "shop", "--wait", "--timeout=5m")

	// The test of a new chart is a pod that runs a command and is not restarted.
	chart := filepath.Join(t.TempDir(), "fresh")
	runHelm(t, k, helm, "create", chart)
	runHelm(t, k, helm, "install", "fresh", chart, "--wait", "--timeout=5m")
	runHelm(t, k, helm, "test", "fresh", "--timeout=1m")
}

// buildHelm builds Helm from its module, and returns the program.
func buildHelm(t *testing.T) string {
	t.Helper()
	program := filepath.Join(t.TempDir(), "helm")
	build := exec.CommandContext(t.Context(), "go", "build", "-ldflags=-s -w", "-o", program,
		"helm.sh/helm/v4/cmd/helm")
	build.Dir, build.Env = filepath.Join("shop", "helm"), append(os.Environ(), "GOWORK=off")
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("build Helm: %v\n%s", err, out)
	}
	return program
}

func runHelm(t *testing.T, k *kubectl.Kubectl, program string, args ...string) {
	t.Helper()
	home := t.TempDir()
	helm := exec.CommandContext(t.Context(), program, args...)
	helm.Env = append(os.Environ(), "KUBECONFIG="+k.Kubeconfig, "HELM_CACHE_HOME="+home,
		"HELM_CONFIG_HOME="+home, "HELM_DATA_HOME="+home)
	if out, err := helm.CombinedOutput(); err != nil {
		t.Fatalf("helm %s: %v\n%s", strings.Join(args, " "), err, out)
	}
}
