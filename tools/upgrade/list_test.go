package main

import (
	"errors"
	"flag"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"golang.org/x/tools/txtar"
)

var (
	update    = flag.Bool("update", false, "write testdata/list.txt anew")
	fromProxy = flag.Bool("download", false,
		"find the causes in Kubernetes 1.36.3 and 1.37.2 too, whose modules are downloaded")
)

// A tree has the files of the modules of a version.
type tree map[string]string

func readTree(t *testing.T, name string) tree {
	t.Helper()
	archive, err := txtar.ParseFile(filepath.Join("testdata", name))
	if err != nil {
		t.Fatal(err)
	}
	files := tree{}
	for _, file := range archive.Files {
		files[file.Name] = string(file.Data)
	}
	return files
}

// write writes the files into a new folder for each module, as the module cache has them.
func (files tree) write(t *testing.T) sources {
	t.Helper()
	s, root := sources{}, t.TempDir()
	for path, content := range files {
		elements := strings.SplitN(path, "/", 3)
		module := elements[0] + "/" + elements[1]
		s[module] = filepath.Join(root, module)
		path = filepath.Join(root, path)
		if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return s
}

// has returns a function that has the sources of some versions.
func has(s cache) func(version) (sources, error) {
	return func(v version) (sources, error) {
		if found, ok := s[v]; ok {
			return found, nil
		}
		return nil, errors.New("there is no version " + string(v))
	}
}

func TestDifferences(t *testing.T) {
	t.Parallel()
	fetch := has(cache{
		"v0.36.3": readTree(t, "before.txtar").write(t), "v0.37.2": readTree(t, "after.txtar").write(t),
	})
	var got strings.Builder
	if missed := listSections(&got, fetch, "v0.36.3", "v0.37.2"); missed != nil {
		t.Error(missed)
	}
	path := filepath.Join("testdata", "list.txt")
	if *update {
		if err := os.WriteFile(path, []byte(got.String()), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if got.String() != string(want) {
		t.Errorf("got\n%s\nwant\n%s", got.String(), want)
	}
}

// causes are why kinproc differed from kube-apiserver, kube-controller-manager and kube-scheduler
// 1.37.2 when it had been compared with 1.36.3 only: by the section of the list, each a pattern of
// the line that shows it.
var causes = map[string][]string{
	"Resources and subresources": {
		`^\+ storage.k8s.io/v1 csinodes/status CSINode `,
		`^\+ scheduling.k8s.io/v1beta1 podgroups `,
		`^\+ storagemigration.k8s.io/v1 storageversionmigrations `,
	},
	"Fields": {`^\+ autoscaling/v2.HorizontalPodAutoscalerCondition.observedGeneration `},
	"Default values": {
		`^~ apps/v1.SetDefaults_StatefulSet: .*MaxUnavailable = .*` +
			`MaxUnavailableStatefulSet is off → MaxUnavailableStatefulSet is on`,
		`^~ storage/v1.SetDefaults_CSIDriver: .*PreventPodSchedulingIfMissing.*` +
			`VolumeLimitScaling is off → VolumeLimitScaling is on`,
		`^~ core/v1.SetDefaults_Pod: .*Grace.* < 0`,
	},
	"Validation tags": {
		`^~ apps/v1.StatefulSetSpec.serviceName: .*immutable`,
		`^~ autoscaling/v2.HorizontalPodAutoscalerSpec.minReplicas: .*\+ \+k8s:beta\(since: "1.37"\)`,
		`^~ core/v1.NodeSpec.providerID: .*NoModify`,
		`^~ flowcontrol/v1.PriorityLevelConfigurationSpec.limited: .*ifMode`,
	},
	"Rules": {
		`^~ pkg/apis/apps/validation: .*~ ValidateStatefulSetUpdate`,
		`^~ pkg/apis/apps/validation: .*- "updates to statefulset spec for fields other than`,
		`^~ pkg/apis/authorization/validation: .*~ ValidateSubjectAccessReviewSpec`,
		`^~ pkg/apis/core/validation: .*~ ValidateNodeUpdate`,
		`^~ pkg/apis/core/validation: .*\+ "field cannot be modified once set"`,
		`^~ pkg/apis/rbac/validation: - "cannot change roleRef"`,
		`^~ pkg/registry/autoscaling/horizontalpodautoscaler: .*PrepareForUpdate`,
		`^~ pkg/registry/flowcontrol/prioritylevelconfiguration: .*Validate`,
	},
	"Libraries": {`^~ k8s.io/apiserver/pkg/endpoints/handlers: .*~ jsonPatcher.applyJSPatch`},
	"Feature gates": {
		`^~ ClusterTrustBundle Beta false → GA true`, `^~ DRADeviceTaintRules Beta false → GA true`,
		`^~ DRAExtendedResource Beta true → GA true locked`,
		`^~ GenericWorkload Alpha false → Beta false`,
		`^\+ HPAGeneration Beta true`, `^~ HPAScaleToZero Alpha false → Beta true`,
		`^~ MaxUnavailableStatefulSet Beta false → Beta true`,
		`^~ StorageVersionMigrator Beta false → GA true`,
		`^~ VolumeLimitScaling Alpha false → Beta true`,
	},
	"Places that ask a gate": {
		`^~ MaxUnavailableStatefulSet off → on: .*pkg/controller/statefulset`,
		`^\+ HPAGeneration on: .*pkg/registry/autoscaling/horizontalpodautoscaler`,
		`^~ HPAScaleToZero off → on: .*pkg/registry/autoscaling/horizontalpodautoscaler`,
		`^~ ClusterTrustBundle off → on: .*cmd/kube-controller-manager/app`,
		`^~ StorageVersionMigrator off → on: .*cmd/kube-controller-manager/app`,
		`^~ VolumeLimitScaling off → on: .*pkg/scheduler/framework/plugins/feature`,
	},
	"Flags": {
		`^\+ kube-controller-manager --concurrent-disruption-syncs `,
		`^~ kube-apiserver --default-watch-cache-size `,
	},
	"Bootstrap roles": {
		`^~ ClusterRole/system:cluster-trust-bundle-discovery: \+ .*list.* clustertrustbundles`,
		`^~ ClusterRoleBinding/system:cluster-trust-bundle-discovery: \+ .* system:serviceaccounts`,
		`^~ ClusterRole/system:controller:kube-apiserver-serving-clustertrustbundle-publisher: \+ attest`,
		`^~ ClusterRole/system:controller:node-controller: \+ get,list,watch leases`,
		`^~ ClusterRole/system:controller:storage-version-migrator-controller: .*\+ list,patch \*`,
	},
	"Printer columns": {
		`^~ k8s.io/apiextensions-apiserver/pkg/registry/.*\+ "Scope"`,
		`^~ pkg/printers/internalversion: .*~ printStorageClass`,
	},
	"Admission plugins": {`^- JobValidation$`},
	"Control loops": {
		`^~ pkg/controller/certificates/clustertrustbundlepublisher: `,
		`^~ pkg/controller/storageversionmigrator: `, `^~ pkg/controller/ttl: `,
	},
	"Scheduler": {
		`^\+ DeferredPodScheduling`, `^~ Filter: .*NodeUnschedulable after nothing → after NodeName`,
		`^~ applyFeatureGates: .*applyGangScheduling\(config\) if .*GenericWorkload`,
		`^~ pkg/scheduler/framework/plugins/dynamicresources: .*- "no new claims to deallocate"`,
		`^~ pkg/scheduler/framework/plugins/gangscheduling: .*Permit`,
		`^~ pkg/scheduler/framework/plugins/imagelocality: .*~ ImageLocality.Score`,
		`^~ pkg/scheduler/framework/plugins/nodevolumelimits: .*~ CSILimits.Filter`,
	},
}

// TestCauses looks for the causes in the list, which is made of parts of both versions, or with
// -download of the versions themselves.
func TestCauses(t *testing.T) {
	t.Parallel()
	fetch := has(cache{
		"v0.36.3": readTree(t, "before.txtar").write(t), "v0.37.2": readTree(t, "after.txtar").write(t),
	})
	if *fromProxy {
		fetch = cache{}.fetch
	}
	titles := map[string]bool{}
	for _, s := range sections() {
		titles[s.title] = true
		lines, err := s.compare(fetch, "v0.36.3", "v0.37.2")
		if err != nil {
			t.Errorf("%s: %v", s.title, err)
		}
		for _, cause := range causes[s.title] {
			if !slices.ContainsFunc(lines, regexp.MustCompile(cause).MatchString) {
				t.Errorf("%s does not show %s", s.title, cause)
			}
		}
	}
	for title := range causes {
		if !titles[title] {
			t.Errorf("there is no section %s", title)
		}
	}
}

// TestOtherFormIsAnError moves what a section reads to where the section does not find it.
func TestOtherFormIsAnError(t *testing.T) {
	t.Parallel()
	before, after := readTree(t, "before.txtar").write(t), readTree(t, "after.txtar")
	for _, test := range []struct{ section, file, old, new string }{
		{"Resources and subresources", "aggregated_v2.json", `"items"`, `"groups"`},
		{"Resources and subresources", "aggregated_v2.json", `"resources"`, `"kinds"`},
		{"Fields", "k8s.io/api/", "`json:", "// `json:"},
		{"Constants", "k8s.io/api/", `Strategy = "`, `= "`},
		{"Default values", "defaults.go", "SetDefaults_", "Complete_"},
		{"Default values", "types.go", "+default=", "+k8s:default="},
		{"Validation tags", "types.go", "+k8s:", "+kubernetes:"},
		{"Rules", "pkg/registry/", "func", "// func"},
		{"Libraries", "handlers/", "func", "// func"},
		{"Feature gates", "versioned_feature_list.yaml", "versionedSpecs", "stages"},
		{"Feature gates", "known_features.go", "defaultVersionedKubernetesFeatureGates", "gates"},
		{"Places that ask a gate", "", "features.", "gates."},
		{"Flags", "pkg/kubeapiserver/options/", "Var(", "Flag("},
		{"Flags", "pkg/controlplane/", "VarP(", "Flag("},
		{"Flags", "plugin/pkg/admission", "flag.Int64(", "newFlag("},
		{"Flags", "component-base", "flag.Duration", "newFlag"},
		{"Bootstrap roles", "-roles.yaml", "items:", "roles:"},
		{"Printer columns", "/printers/", "TableColumnDefinition", "Column"},
		{"Admission plugins", "plugins.go", "AllOrderedPlugins", "Plugins"},
		{"Admission plugins", "plugin/pkg/admission", "PluginName =", "Name ="},
		{"Control loops", "controller_names.go", "const", "var"},
		{"Scheduler", "names.go", "const", "var"},
		{"Scheduler", "defaults/defaults.go", "Enabled:", "On:"},
	} {
		t.Run(test.section, func(t *testing.T) {
			t.Parallel()
			other := maps.Clone(after)
			for path, content := range other {
				if strings.Contains(path, test.file) {
					other[path] = strings.ReplaceAll(content, test.old, test.new)
				}
			}
			fetch := has(cache{"v0.36.3": before, "v0.37.2": other.write(t)})
			var list strings.Builder
			missed := errors.Join(listSections(&list, fetch, "v0.36.3", "v0.37.2")...)
			if missed == nil || !strings.Contains(missed.Error(), `section "`+test.section+`": `) {
				t.Errorf("%s: without %s: %v", test.file, test.old, missed)
			}
			if !strings.Contains(list.String(), "\n  INCOMPLETE: section") {
				t.Error("the list does not say that it lacks something")
			}
		})
	}
}

// TestEmptySection has sections without differences.
func TestEmptySection(t *testing.T) {
	t.Parallel()
	a, b := readTree(t, "before.txtar").write(t), readTree(t, "after.txtar").write(t)
	for _, test := range []struct {
		name     string
		versions cache
		to       version
		fails    bool
	}{
		{"after two steps with entries", cache{"v0.40.0": a, "v0.41.0": b, "v0.42.3": a, "v0.43.0": a},
			"v0.43.0", true},
		{"after a step without entries", cache{"v0.40.0": b, "v0.41.0": a, "v0.42.3": a, "v0.43.0": a},
			"v0.43.0", false},
		{"after one step with entries", cache{"v0.40.0": b, "v0.41.0": b, "v0.42.3": a, "v0.43.0": a},
			"v0.43.0", false},
		{"in a patch", cache{"v0.42.3": a, "v0.42.4": a}, "v0.42.4", false},
	} {
		var list strings.Builder
		missed := listSections(&list, has(test.versions), "v0.42.3", test.to)
		want := 0
		if test.fails {
			want = len(sections())
		}
		if len(missed) != want {
			t.Errorf("%s: %d of %d sections fail: %v", test.name, len(missed), want, missed)
		}
	}
}
