package looptest

import (
	"io"
	"testing"

	"k8s.io/client-go/kubernetes"
	"k8s.io/klog/v2"

	"github.com/kinproc/kinproc/server"
	"github.com/kinproc/kinproc/server/internal/controllers/nodes/podgc"
	"github.com/kinproc/kinproc/server/internal/controllers/nodes/scheduler"
	"github.com/kinproc/kinproc/server/internal/controllers/workloadtest"
	"github.com/kinproc/kinproc/server/servertest"
)

// TestMain starts the control plane that the tests share. It has no nodes, and pods are not
// scheduled: a test is the kubelet of its pods. So nobody deletes pods whose node does not exist.
func TestMain(m *testing.M) {
	// A test that fails prints the log of its control plane.
	klog.LogToStderr(false)
	klog.SetOutput(io.Discard)
	servertest.MainWith(m, func(t servertest.TB) servertest.API {
		return servertest.Run(t, func(o *server.Options) {
			o.Controllers = []string{"*", "-" + scheduler.Name, "-" + podgc.Name}
		})
	})
}

// shared returns a client of the control plane that the tests share, and a namespace of the test's
// own in it.
func shared(t *testing.T) (client kubernetes.Interface, namespace string) {
	t.Helper()
	s, namespace := servertest.Shared(t)
	client, err := kubernetes.NewForConfig(s.RESTConfig())
	workloadtest.OK(t, err)
	return client, namespace
}
