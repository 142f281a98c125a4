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

	"github.com/kinproc/kinproc/conformance/internal/exchanges"
	"github.com/kinproc/kinproc/server"
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
	recordings, err := exchanges.Load(os.DirFS("testdata"))
	if err != nil {
		t.Fatal(err)
	}
	if len(recordings) < 60 {
		t.Fatalf("there are only %d recordings", len(recordings))
	}
	var mu sync.Mutex
	meant, seen, replayed := exceptions(t), map[string]bool{}, map[string]bool{}
	t.Run("recording", func(t *testing.T) {
		for _, r := range recordings {
			t.Run(r.Name, func(t *testing.T) {
				t.Parallel()
				differences, count := replay(t, r, meant)
				mu.Lock()
				defer mu.Unlock()
				replayed[r.Name] = true
				for _, d := range differences {
					key := exceptionOf(d)
					if _, ok := meant[key]; !ok {
						t.Error(d)
					}
					seen[key] = true
				}
				t.Logf("%d of %d exchanges are the same", count-len(differences), count)
			})
		}
	})
	for key, reason := range meant {
		if file, _, _ := strings.Cut(key, "/"); !replayed[file] {
			continue // -run chose others
		}
		if !seen[key] {
			t.Errorf("%s is no difference any more: remove it from testdata/exceptions.json (%s)", key, reason)
		}
	}
}

func exceptionOf(d *exchanges.Difference) string {
	return exception{File: d.File, Case: d.Case, Step: d.Step}.String()
}

// attempts is how often a recording is replayed if a second ended in the middle of a case.
const attempts = 4

// replay replays a recording, each time on a control plane that is new.
func replay(t *testing.T, r *exchanges.Recording, meant map[string]string) ([]*exchanges.Difference, int) {
	t.Helper()
	for attempt := 1; ; attempt++ {
		differences, count, err := r.Replay(t.Context(), start(t))
		if err != nil {
			t.Error(err)
		}
		unmeant := slices.DeleteFunc(slices.Clone(differences), func(d *exchanges.Difference) bool {
			_, ok := meant[exceptionOf(d)]
			return ok
		})
		if len(unmeant) == 0 || attempt == attempts || slices.ContainsFunc(unmeant, func(d *exchanges.Difference) bool { return !outOfTime(d) }) {
			return differences, count
		}
		t.Logf("once more: %v", unmeant)
	}
}

// outOfTime reports whether an answer may differ just because it came in another second than the one before: the order of managed fields is
// by whole seconds, and an apply that changes nothing but that order writes. Slow machines take longer for a case than a second.
func outOfTime(d *exchanges.Difference) bool {
	return len(d.What) == 1 && strings.HasSuffix(d.What[0], `metadata/resourceVersion: want "<rv:same>", got "<rv:new>"`)
}

func start(t *testing.T) exchanges.Target {
	t.Helper()
	tokens := filepath.Join(t.TempDir(), "tokens.csv")
	if err := os.WriteFile(tokens, []byte(token+",admin,uid1,system:masters\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	s := servertest.Run(t, servertest.WithoutControllers, withoutServiceAccounts, func(o *server.Options) {
		o.TokenAuthFile = tokens
	})
	config := rest.AnonymousClientConfig(s.RESTConfig())
	transport, err := rest.TransportFor(config)
	if err != nil {
		t.Fatal(err)
	}
	return exchanges.Target{URL: config.Host, Client: &http.Client{Transport: transport}, Token: token}
}

// withoutServiceAccounts is how the recordings were made: pods need no account.
func withoutServiceAccounts(o *server.Options) {
	o.Admission = server.NewAdmissionOptions()
	o.Admission.DisablePlugins = []string{"ServiceAccount"}
}
