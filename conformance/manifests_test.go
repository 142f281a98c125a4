package conformance_test

import (
	"context"
	"encoding/json"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/util/wait"

	"github.com/kinproc/kinproc/server/servertest"
)

// project is a Go module that ships manifests.
type project struct {
	// module is the module's path and version, and sum is its go.sum hash.
	module, sum string
	// definitions lists files and folders with custom resource definitions.
	definitions []string
	// workloads lists files and folders (read recursively) with manifests that use the definitions.
	workloads []string
	// except maps the files below workloads that cannot be applied to the reason: either they are
	// not manifests, or kube-apiserver rejects them too.
	except map[string]string
}

var projects = []project{
	{
		module: "sigs.k8s.io/gateway-api@v1.6.0", sum: "h1:735YBRj5NXFrOGX0GoSjwzUIzbz8kiEOfADsqHFmHgE=",
		definitions: []string{"config/crd/experimental"},
		workloads:   []string{"examples/standard", "examples/experimental"},
	},
	{
		module:      "github.com/cert-manager/cert-manager@v1.21.2",
		sum:         "h1:UWgoYM+KLNtRlqmoWOKjKBOBUPVHeepQ6/ac3ERJW68=",
		definitions: []string{"deploy/crds"},
	},
	{
		module: "sigs.k8s.io/cluster-api@v1.14.2", sum: "h1:o3GFNaeNFAOEEMpDPfhCK+2CjmV6gtQ8yLEcUwCg7bA=",
		definitions: []string{
			"core/config/crd/bases", "bootstrap/kubeadm/config/crd/bases",
			"controlplane/kubeadm/config/crd/bases", "cmd/clusterctl/config/crd/bases",
		},
	},
	{
		module:      "github.com/prometheus-operator/prometheus-operator@v0.85.0",
		sum:         "h1:M5xLCLEoaW2IJfnuCwFzzpL+jSVQu3KGT84Pye+fW8s=",
		definitions: []string{"example/prometheus-operator-crd-full"},
		workloads: []string{
			"bundle.yaml", "example/additional-scrape-configs", "example/admission-webhook",
			"example/networkpolicies", "example/non-rbac", "example/rbac", "example/shards",
			"example/storage", "example/thanos", "example/user-guides",
		},
		except: map[string]string{
			"example/additional-scrape-configs/prometheus-additional.yaml": "configures Prometheus",
			"example/user-guides/alerting/alertmanager.yaml":               "configures Alertmanager",

			"example/user-guides/scrapeclass/scrapeclass-example-definition.yaml":     "has no name",
			"example/user-guides/scrapeclass/scrapeclass-example-podmonitor.yaml":     "has no name",
			"example/user-guides/scrapeclass/scrapeclass-example-servicemonitor.yaml": "has no selector",
		},
	},
	{
		module:      "github.com/kubernetes-csi/external-snapshotter/client/v8@v8.7.0",
		sum:         "h1:HVaSUeRRHPu49aSiL8eXOjS9Re9G6pM0NzdTGI7mM14=",
		definitions: []string{"config/crd"},
	},
}

// download fetches a module unless it is in the module cache, and returns its folder.
func download(t *testing.T, module, sum string) string {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), "go", "mod", "download", "-json", module)
	cmd.Dir = t.TempDir() // outside any module
	out, err := cmd.Output()
	var got struct{ Dir, Sum, Error string }
	if err := errors.Join(json.Unmarshal(out, &got), err); err != nil {
		t.Fatalf("download %s: %v %s", module, err, got.Error)
	}
	if got.Sum != sum {
		t.Fatalf("%s has checksum %s, want %s", module, got.Sum, sum)
	}
	return got.Dir
}

// TestRealManifestsApply applies the manifests of well-known projects.
func TestRealManifestsApply(t *testing.T) {
	t.Parallel()
	for _, p := range projects {
		name, _, _ := strings.Cut(p.module, "@")
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			dir := download(t, p.module, p.sum)
			run := kubectlFor(t, servertest.Run(t))
			// A command for many files, because kubectl reads the server's documents for every
			// command.
			apply := func(files []string) (string, error) {
				args := []string{"apply", "--server-side", "--force-conflicts"}
				for _, file := range files {
					args = append(args, "--filename="+file)
				}
				return run(args...)
			}
			var definitions []string
			for _, path := range p.definitions {
				definitions = append(definitions, manifests(t, filepath.Join(dir, path))...)
			}
			if _, err := apply(definitions); err != nil {
				t.Error(err)
			}
			// kubectl wait fails at once while a definition has no conditions.
			const patience = 3 * time.Minute
			var last error
			if err := wait.PollUntilContextTimeout(t.Context(), 50*time.Millisecond, patience, true,
				func(context.Context) (bool, error) {
					_, last = run("wait", "--for=condition=Established", "customresourcedefinitions",
						"--all", "--timeout="+patience.String())
					return last == nil, nil
				}); err != nil {
				t.Fatal(errors.Join(err, last))
			}
			var workloads []string
			namespaces := map[string]bool{"default": true, "kube-system": true}
			for _, path := range p.workloads {
				for _, file := range manifests(t, filepath.Join(dir, path)) {
					relative, err := filepath.Rel(dir, file)
					if err != nil {
						t.Fatal(err)
					}
					ensureNamespaces(t, run, file, namespaces)
					if _, except := p.except[filepath.ToSlash(relative)]; !except {
						workloads = append(workloads, file)
					} else if _, err := apply([]string{file}); err == nil {
						t.Errorf("%s applied although it is listed as an exception: remove it from the list",
							relative)
					}
				}
			}
			if len(workloads) == 0 {
				return
			}
			out, err := apply(workloads)
			if err != nil {
				t.Error(err)
			}
			applied := strings.Count(out, "serverside-applied")
			t.Logf("applied %d objects besides the definitions", applied)
		})
	}
}

// manifests returns the YAML files at or below path.
func manifests(t *testing.T, path string) []string {
	t.Helper()
	var files []string
	err := filepath.WalkDir(path, func(file string, d os.DirEntry, err error) error {
		if err == nil && !d.IsDir() && slices.Contains([]string{".yaml", ".yml"}, filepath.Ext(file)) &&
			d.Name() != "kustomization.yaml" {
			files = append(files, file)
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return files
}

var namespaceField = regexp.MustCompile(`(?m)^  namespace: ["']?([a-z0-9-]+)`)

// ensureNamespaces creates the namespaces that a manifest refers to, unless they exist.
func ensureNamespaces(
	t *testing.T, run func(...string) (string, error), file string, there map[string]bool,
) {
	t.Helper()
	data, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	for _, match := range namespaceField.FindAllSubmatch(data, -1) {
		namespace := string(match[1])
		if there[namespace] {
			continue
		}
		there[namespace] = true
		if _, err := run("create", "namespace", namespace); err != nil {
			t.Fatal(err)
		}
	}
}
