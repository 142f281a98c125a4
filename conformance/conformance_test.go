package conformance_test

import (
	"encoding/json"
	"flag"
	"fmt"
	"net/http"
	"os"
	"os/exec"
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

var emulated = flag.String("kubernetes", "",
	"minor version of Kubernetes that all tests compare, such as 1.35; if empty, the newest")

// exception is an intended difference from kube-apiserver.
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

// recordings returns the recordings of a version of Kubernetes, or of the newest. The folder of an
// earlier one has those that differ.
func recordings(t *testing.T, version string) []*exchanges.Recording {
	t.Helper()
	all, err := exchanges.Load(os.DirFS("testdata"))
	if err != nil {
		t.Fatal(err)
	}
	if len(all) < 60 {
		t.Fatalf("found only %d recordings", len(all))
	}
	if version == "" {
		return all
	}
	others, err := exchanges.Load(os.DirFS(filepath.Join("testdata", version)))
	if err != nil || len(others) == 0 {
		t.Fatalf("found %d recordings of %s: %v", len(others), version, err)
	}
	for _, other := range others {
		i := slices.IndexFunc(all, func(r *exchanges.Recording) bool { return r.Name == other.Name })
		if i < 0 {
			t.Fatalf("only %s has a recording %s", version, other.Name)
		}
		all[i] = other
	}
	return all
}

// TestAnswersAsEarlierKubeAPIServers replays what kube-apiserver answers when it emulates earlier
// versions, each in a process of its own.
func TestAnswersAsEarlierKubeAPIServers(t *testing.T) {
	t.Parallel()
	program, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	versions := server.EmulatedVersions()
	for _, version := range versions[:len(versions)-1] {
		cmd := exec.CommandContext(t.Context(), program, "-test.v", "-kubernetes="+version,
			"-test.run=^TestAnswersAsKubeAPIServer$")
		out, err := cmd.CombinedOutput()
		if err != nil {
			t.Errorf("as Kubernetes %s: %v\n%s", version, err, out)
		}
	}
}

// Every recording is replayed against its own control plane: the recordings run in parallel, and
// each expects to start with an empty cluster.
func TestAnswersAsKubeAPIServer(t *testing.T) {
	t.Parallel()
	if *recordedServer != "" {
		record(t, recordings(t, ""))
		return
	}
	recordings := recordings(t, *emulated)
	var mu sync.Mutex
	meant, seen, replayed := exceptions(t), map[string]bool{}, map[string]bool{}
	words := &wordings{found: map[string][]string{}}
	t.Run("recording", func(t *testing.T) {
		for _, r := range recordings {
			t.Run(r.Name, func(t *testing.T) {
				t.Parallel()
				differences, count := replay(t, r, meant, words)
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
				t.Logf("%d of %d exchanges match", count-len(differences), count)
			})
		}
	})
	if *emulated == "" {
		words.check(t, replayed)
	}
	for key, reason := range meant {
		if file, _, _ := strings.Cut(key, "/"); !replayed[file] {
			continue // not selected by -run
		}
		if !seen[key] {
			t.Errorf("%s no longer differs: remove it from testdata/exceptions.json (%s)", key, reason)
		}
	}
}

func exceptionOf(d *exchanges.Difference) string {
	return exception{File: d.File, Case: d.Case, Step: d.Step}.String()
}

// attempts is how often a recording is replayed when a case ran across the boundary of a second.
const attempts = 4

// replay replays a recording, each time against a new control plane. An exchange has to be in time
// in one of the attempts.
func replay(
	t *testing.T, r *exchanges.Recording, meant map[string]string, words *wordings,
) ([]*exchanges.Difference, int) {
	t.Helper()
	var late map[string]bool // the exchanges that were out of time in all attempts
	for attempt := 1; ; attempt++ {
		target := start(t)
		target.Wording = words.begin(r.Name)
		differences, count, err := r.Replay(t.Context(), target)
		if err != nil {
			t.Error(err)
		}
		before, other := late, false
		late = map[string]bool{}
		differences = slices.DeleteFunc(differences, func(d *exchanges.Difference) bool {
			key := exceptionOf(d)
			if _, ok := meant[key]; ok {
				return false
			}
			if !outOfTime(d) {
				other = true
				return false
			}
			if attempt > 1 && !before[key] {
				return true // it was in time
			}
			late[key] = true
			return false
		})
		if len(late) == 0 || other || attempt == attempts {
			return differences, count
		}
		t.Logf("retrying: %v", differences)
	}
}

// outOfTime reports whether a response may differ only because it fell into a later second than the
// previous one. Managed fields are sorted by whole seconds, and an apply that changes nothing but
// their order is still a write. On a slow machine, a case takes longer than a second.
func outOfTime(d *exchanges.Difference) bool {
	return len(d.What) == 1 &&
		strings.HasSuffix(d.What[0], `metadata/resourceVersion: want "<rv:same>", got "<rv:new>"`)
}

func start(t *testing.T) exchanges.Target {
	t.Helper()
	tokens := filepath.Join(t.TempDir(), "tokens.csv")
	if err := os.WriteFile(tokens, []byte(token+",admin,uid1,system:masters\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	s := servertest.Run(t, servertest.WithoutControllers, withoutServiceAccounts,
		func(o *server.Options) {
			o.TokenAuthFile, o.EmulatedVersion = tokens, *emulated
			o.AuthorizationModes = []string{"RBAC", "Node"} // as of the recorded server
		})
	config := rest.AnonymousClientConfig(s.RESTConfig())
	transport, err := rest.TransportFor(config)
	if err != nil {
		t.Fatal(err)
	}
	return exchanges.Target{URL: config.Host, Client: &http.Client{Transport: transport}, Token: token}
}

// withoutServiceAccounts disables the ServiceAccount admission plugin, as it was disabled for the
// recordings, so that pods do not need a service account.
func withoutServiceAccounts(o *server.Options) {
	o.Admission = server.NewAdmissionOptions()
	o.Admission.DisablePlugins = []string{"ServiceAccount"}
}
