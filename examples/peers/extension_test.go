package peers_test

import (
	"path/filepath"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/dynamic"

	"github.com/kinproc/kinproc/server/servertest"
)

// sample-apiserver under test, with the helpers of servertest for everything that is not its own.
func TestExtensionUnderTest(t *testing.T) {
	t.Parallel()
	s := servertest.Run(t, withEtcd)
	servertest.Apply(t, s, "", servertest.YAML(wardleRights))
	e := servertest.NewEndpoint(t)
	w := &wardle{
		t: t, addr: e.Addr(), etcd: etcdFlags(s),
		kubeconfig: servertest.Kubeconfig(t, servertest.User(t, s, servertest.Account{
			Name: "wardle-server", ClusterRole: "wardle-server",
		})),
		certFile: filepath.Join(e.CertDir, "tls.crt"), keyFile: filepath.Join(e.CertDir, "tls.key"),
	}
	w.start()
	t.Cleanup(w.stop)
	servertest.APIService(t, s, e, flunders.GroupVersion())

	client := dynamic.NewForConfigOrDie(s.RESTConfig()).Resource(flunders).Namespace("default")
	if _, err := client.Create(t.Context(), flunder("first"), metav1.CreateOptions{}); err != nil {
		t.Error(err)
	}
}
