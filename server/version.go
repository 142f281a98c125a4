package server

import (
	"runtime"
	"runtime/debug"

	"k8s.io/apimachinery/pkg/version"
	basecompatibility "k8s.io/component-base/compatibility"
)

// KubernetesVersion is the version of Kubernetes whose API is served.
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

// emulationFloor is the oldest version that --emulated-version could name; kube-apiserver allows
// the three previous minor versions.
const emulationFloor = "1.34"

func newEffectiveVersion() effectiveVersion {
	return effectiveVersion{basecompatibility.NewEffectiveVersionFromString(KubernetesVersion,
		emulationFloor, emulationFloor)}
}

func (v effectiveVersion) Info() *version.Info {
	return &version.Info{
		Major:                 "1",
		Minor:                 "37",
		EmulationMajor:        "1",
		EmulationMinor:        "37",
		MinCompatibilityMajor: "1",
		MinCompatibilityMinor: "36",
		GitVersion:            KubernetesVersion + "+kinproc",
		GitTreeState:          "clean",
		GoVersion:             runtime.Version(),
		Compiler:              runtime.Compiler,
		Platform:              runtime.GOOS + "/" + runtime.GOARCH,
	}
}
