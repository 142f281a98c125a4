package apitest

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"k8s.io/client-go/kubernetes"
)

// TestHealthChecks looks for the checks of kube-apiserver v1.36.3, whose names are in testdata.
func TestHealthChecks(t *testing.T) {
	t.Parallel()
	s, _ := shared(t)
	client := kubernetes.NewForConfigOrDie(s.RESTConfig()).RESTClient()
	for _, endpoint := range []string{"healthz", "livez", "readyz"} {
		var answer []byte
		// A check fails while etcd takes longer than two seconds for an answer.
		eventually(t, endpoint, func() (err error) {
			answer, err = client.Get().AbsPath("/"+endpoint).Param("verbose", "").DoRaw(t.Context())
			return err
		})
		names, err := os.ReadFile(filepath.Join("testdata", endpoint+"-1.36.txt"))
		if err != nil {
			t.Fatal(err)
		}
		for _, name := range strings.Fields(string(names)) {
			if !strings.Contains(string(answer), "[+]"+name+" ok\n") {
				t.Errorf("%s has no check %s that succeeds", endpoint, name)
			}
		}
	}
}
