package server

import (
	"context"
	"fmt"
	"runtime"
	"runtime/debug"

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

// This file holds the only writes to process-wide variables of the Kubernetes libraries.

// setFeatureGates sets feature gates of the Kubernetes libraries, and registers their metrics and
// those of flow control, which would race with the first servers of a process otherwise. The
// feature gates are shared by the whole process.
func setFeatureGates(gates map[string]bool) error {
	if err := chainfeatures.Register(); err != nil {
		return err
	}
	registered := registeredGates()
	if registered[features.ListFromCacheSnapshot].Default {
		// With this gate, a watch cache copies a part of its tree with each event, to serve lists
		// at old revisions. Here such lists are read from etcd, so the gate is off unless it is set.
		err := utilfeature.DefaultMutableFeatureGate.OverrideDefault(
			features.ListFromCacheSnapshot, false)
		if err != nil {
			return fmt.Errorf("set feature gates: %w", err)
		}
	}
	if set := registered.Switches(gates); set != nil {
		if err := utilfeature.DefaultMutableFeatureGate.SetFromMap(set); err != nil {
			return fmt.Errorf("set feature gates: %w", err)
		}
	}
	utilfeature.DefaultMutableFeatureGate.AddMetrics()
	flowcontrolmetrics.Register()
	return nil
}

func registeredGates() featuregates.Registered {
	return utilfeature.DefaultMutableFeatureGate.GetAll()
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

// emulated is how many minor versions before its own a kube-apiserver can emulate.
const emulated = 3

func newEffectiveVersion() effectiveVersion {
	binary := utilversion.MustParse(KubernetesVersion)
	floor := binary.SubtractMinor(emulated)
	return effectiveVersion{basecompatibility.NewEffectiveVersion(binary, false, floor, floor)}
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
