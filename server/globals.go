package server

import (
	"context"
	"fmt"
	"runtime"
	"runtime/debug"
	"slices"
	"sync"

	utilversion "k8s.io/apimachinery/pkg/util/version"
	"k8s.io/apimachinery/pkg/version"
	"k8s.io/apiserver/pkg/features"
	utilfeature "k8s.io/apiserver/pkg/util/feature"
	flowcontrolmetrics "k8s.io/apiserver/pkg/util/flowcontrol/metrics"
	basecompatibility "k8s.io/component-base/compatibility"
	"k8s.io/klog/v2"

	chainfeatures "github.com/kinproc/kinproc/chain/features"
	"github.com/kinproc/kinproc/server/internal/featuregates"
)

// This file holds the only writes to process-wide variables of the Kubernetes libraries, but for
// those of packages servertest and patches.

// gatesOf is the version of Kubernetes whose feature gates this process has. The first server
// decides: kinds, control loops and libraries ask the gates while they work.
var gatesOf struct {
	sync.Mutex
	version *utilversion.Version
}

// setFeatureGates sets feature gates of the Kubernetes libraries, and registers their metrics and
// those of flow control, which would race with the first servers of a process otherwise. The
// feature gates are shared by the whole process.
func setFeatureGates(values map[string]bool, of effectiveVersion) error {
	gatesOf.Lock()
	defer gatesOf.Unlock()
	emulated := of.EmulationVersion()
	switch {
	case gatesOf.version == nil:
		if err := emulate(of); err != nil {
			return fmt.Errorf("set feature gates: %w", err)
		}
		gatesOf.version = emulated
	case !emulated.EqualTo(gatesOf.version):
		return fmt.Errorf("a server of Kubernetes %s was started in this process before; feature "+
			"gates are shared by the whole process, so use a process for each version", gatesOf.version)
	case len(values) == 0:
		return nil
	}
	all := utilfeature.DefaultMutableFeatureGate
	if len(values) > 0 {
		gates, err := featuregates.Of(emulated)
		if err != nil {
			return err
		}
		if err := all.SetFromMap(gates.Switches(values)); err != nil {
			return fmt.Errorf("set feature gates: %w", err)
		}
	}
	all.AddMetrics()
	flowcontrolmetrics.Register()
	return nil
}

// emulate gives the feature gates the defaults of a version of Kubernetes.
func emulate(of effectiveVersion) error {
	if err := chainfeatures.Register(); err != nil {
		return err
	}
	all := utilfeature.DefaultMutableFeatureGate
	if !of.EmulationVersion().EqualTo(all.EmulationVersion()) {
		if err := all.SetEmulationVersionAndMinCompatibilityVersion(
			of.EmulationVersion(), of.MinCompatibilityVersion()); err != nil {
			return err
		}
	}
	// With this gate, a watch cache copies a part of its tree with each event, to serve lists at
	// old revisions. Here such lists are read from etcd, so the gate is off unless it is set.
	return all.OverrideDefault(features.ListFromCacheSnapshot, false)
}

// gates returns the feature gates of the version of Kubernetes that the completed options ask for.
func (o *Options) gates() (featuregates.Gates, error) {
	if err := chainfeatures.Register(); err != nil {
		return featuregates.Gates{}, err
	}
	emulate, err := utilversion.ParseMajorMinor(o.EmulatedVersion)
	if err != nil {
		return featuregates.Gates{}, fmt.Errorf("emulated version: %w", err)
	}
	return featuregates.Of(emulate)
}

func (o *Options) checkGates() error {
	if len(o.FeatureGates) == 0 || !slices.Contains(EmulatedVersions(), o.EmulatedVersion) {
		return nil // another check says that there is no such version
	}
	gates, err := o.gates()
	if err != nil {
		return err
	}
	return gates.Check(o.FeatureGates)
}

// withLog makes the Kubernetes libraries log to Options.Log wherever they take the logger from the
// context. A zero logger discards everything; with no logger in the context they would use klog's.
func (o *Options) withLog(ctx context.Context) context.Context {
	return klog.NewContext(ctx, o.Log)
}

// KubernetesVersion is the version of Kubernetes whose API is served: that of the libraries.
const KubernetesVersion = "v1.37.2"

const modulePath = "github.com/kinproc/kinproc"

// Version returns the version of the kinproc module that the program was built with; it is
// "(devel)" in a checkout.
func Version() string {
	info, ok := debug.ReadBuildInfo()
	if !ok {
		return "(unknown)"
	}
	if info.Main.Path == modulePath {
		return info.Main.Version
	}
	for _, m := range info.Deps {
		if m.Path == modulePath {
			return m.Version
		}
	}
	return "(unknown)"
}

// effectiveVersion provides the response to /version.
type effectiveVersion struct {
	basecompatibility.EffectiveVersion
}

// emulated is how many minor versions before its own a kube-apiserver can emulate (KEP-4330).
const emulated = 3

func newEffectiveVersion(emulate *utilversion.Version) effectiveVersion {
	binary := utilversion.MustParse(KubernetesVersion)
	floor := binary.SubtractMinor(emulated)
	v := basecompatibility.NewEffectiveVersion(binary, false, floor, floor)
	v.SetEmulationVersion(emulate)
	return effectiveVersion{v}
}

// KubernetesVariable is the environment variable with the version of Kubernetes, such as "1.35", of
// control planes for tests: those of package servertest, and those that stand in for envtest's
// kube-apiserver. It applies unless a test says otherwise. kinproc exec --kubernetes sets it.
const KubernetesVariable = "KINPROC_KUBERNETES"

// EmulatedVersions returns the versions for Options.EmulatedVersion, such as "1.37", the oldest
// first.
func EmulatedVersions() []string {
	binary := utilversion.MustParse(KubernetesVersion)
	var versions []string
	for before := uint(emulated); before > 0; before-- {
		versions = append(versions, binary.SubtractMinor(before).String())
	}
	return append(versions, fmt.Sprintf("%d.%d", binary.Major(), binary.Minor()))
}

// version returns the version of Kubernetes that the options ask for.
func (o *Options) version() effectiveVersion {
	return newEffectiveVersion(utilversion.MustParse(o.EmulatedVersion)) // has been validated
}

func (v effectiveVersion) Info() *version.Info {
	library := v.EffectiveVersion.Info()
	return &version.Info{
		Major:                 library.Major,
		Minor:                 library.Minor,
		EmulationMajor:        library.EmulationMajor,
		EmulationMinor:        library.EmulationMinor,
		MinCompatibilityMajor: library.MinCompatibilityMajor,
		MinCompatibilityMinor: library.MinCompatibilityMinor,
		GitVersion:            KubernetesVersion + "+kinproc",
		GitTreeState:          "clean",
		GoVersion:             runtime.Version(),
		Compiler:              runtime.Compiler,
		Platform:              runtime.GOOS + "/" + runtime.GOARCH,
	}
}
