package conformance_test

import (
	"encoding/json"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"

	"k8s.io/client-go/rest"

	"github.com/kinproc/kinproc/conformance"
	"github.com/kinproc/kinproc/server"
	"github.com/kinproc/kinproc/server/admission"
	"github.com/kinproc/kinproc/server/servertest"
)

const token = "conformance-test"

// exception is a difference that is meant.
type exception struct {
	File   string `json:"file"`
	Case   string `json:"case"`
	Step   int    `json:"step"`
	Reason string `json:"reason"`
}

func (e exception) String() string { return fmt.Sprintf("%s/%s #%d", e.File, e.Case, e.Step) }

func exceptions(t *testing.T) map[string]string {
	t.Helper()
	data, err := os.ReadFile("testdata/exceptions.json")
	if err != nil {
		t.Fatal(err)
	}
	var list []exception
	if err := json.Unmarshal(data, &list); err != nil {
		t.Fatal(err)
	}
	reasons := map[string]string{}
	for _, e := range list {
		if e.Reason == "" {
			t.Errorf("%s has no reason", e)
		}
		reasons[e.String()] = e.Reason
	}
	return reasons
}

// Every recording gets a control plane of its own: they run side by side, and each begins with an empty one.
func TestAnswersAsKubeAPIServer(t *testing.T) {
	t.Parallel()
	recordings, err := conformance.Load(os.DirFS("testdata"))
	if err != nil {
		t.Fatal(err)
	}
	if len(recordings) < 60 {
		t.Fatalf("there are only %d recordings", len(recordings))
	}
	var mu sync.Mutex
	meant, replayed := exceptions(t), map[string]bool{}
	t.Run("recording", func(t *testing.T) {
		for _, r := range recordings {
			t.Run(r.Name, func(t *testing.T) {
				t.Parallel()
				differences, exchanges, err := r.Replay(t.Context(), start(t))
				if err != nil {
					t.Error(err)
				}
				mu.Lock()
				defer mu.Unlock()
				replayed[r.Name] = true
				for _, d := range differences {
					key := exception{File: d.File, Case: d.Case, Step: d.Step}.String()
					if _, ok := meant[key]; !ok {
						t.Error(d)
					}
					delete(meant, key)
				}
				t.Logf("%d of %d exchanges are the same", exchanges-len(differences), exchanges)
			})
		}
	})
	for key, reason := range meant {
		if file, _, _ := strings.Cut(key, "/"); !replayed[file] {
			continue // -run chose others
		}
		t.Errorf("%s is no difference any more: remove it from testdata/exceptions.json (%s)", key, reason)
	}
}

func start(t *testing.T) conformance.Target {
	t.Helper()
	tokens := filepath.Join(t.TempDir(), "tokens.csv")
	if err := os.WriteFile(tokens, []byte(token+",admin,uid1,system:masters\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	s := servertest.Run(t, servertest.WithoutControllers, func(o *server.Options) {
		o.TokenAuthFile = tokens
		o.Admission = admission.NewOptions()
		if slices.Contains(o.Admission.Plugins.Registered(), "ServiceAccount") {
			o.Admission.DisablePlugins = []string{"ServiceAccount"}
		}
	})
	config := rest.AnonymousClientConfig(s.RESTConfig())
	transport, err := rest.TransportFor(config)
	if err != nil {
		t.Fatal(err)
	}
	return conformance.Target{URL: config.Host, Client: &http.Client{Transport: transport}, Token: token}
}
