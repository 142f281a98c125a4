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

// Version is kinproc's own version: that of the module which the program was built with, "(devel)" in a checkout.
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

// effectiveVersion answers /version: which API is served, and by what.
type effectiveVersion struct {
	basecompatibility.EffectiveVersion
}

// The oldest version that --emulated-version could name; kube-apiserver allows three.
const emulationFloor = "1.34"

func newEffectiveVersion() effectiveVersion {
	return effectiveVersion{basecompatibility.NewEffectiveVersionFromString(KubernetesVersion, emulationFloor, emulationFloor)}
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
