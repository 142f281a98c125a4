package cli_test

import (
	"bytes"
	"encoding/json"
	"os"
	"path/filepath"
	"reflect"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"

	"github.com/kinproc/kinproc/chain/history"
)

// What the history knows about the writers survives a kill, but for about the last second, for
// which this test waits. A file whose end is torn is no reason not to start.
func TestHistoryAfterKill(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	p := startProgram(t, dir)
	client := p.client()
	version := func(client kubernetes.Interface) history.Version {
		t.Helper()
		data, err := client.CoreV1().RESTClient().Get().
			AbsPath(history.Path, "api/v1/namespaces/default/configmaps/limits").DoRaw(t.Context())
		var h history.History
		if err == nil {
			err = json.Unmarshal(data, &h)
		}
		if err != nil || len(h.Versions) != 1 || h.Versions[0].Writer == nil {
			t.Fatalf("%+v, %v", h, err)
		}
		return h.Versions[0]
	}
	if _, err := client.CoreV1().ConfigMaps(metav1.NamespaceDefault).Create(t.Context(),
		&corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: "limits"}},
		metav1.CreateOptions{FieldManager: "historian"}); err != nil {
		t.Fatal(err)
	}
	before := version(client)
	file := filepath.Join(dir, "writers", "current")
	tick := time.NewTicker(time.Millisecond)
	defer tick.Stop()
	var written []byte
	for !bytes.Contains(written, []byte("historian")) {
		select {
		case <-tick.C:
		case <-p.ended:
			t.Fatalf("kinproc ended: %s", p.output)
		}
		written, _ = os.ReadFile(file) // which is not there at first
	}
	p.kill()
	written, err := os.ReadFile(file)
	if err == nil {
		err = os.WriteFile(file, append(written, written[:len(written)/2]...), 0o600)
	}
	if err == nil {
		err = os.Remove(p.kubeconfig)
	}
	if err != nil {
		t.Fatal(err)
	}
	p = startProgram(t, dir)
	if after := version(p.client()); !reflect.DeepEqual(after, before) {
		t.Errorf("it was %+v, and is %+v", before, after)
	}
}
