// Package features declares the feature gates of kube-apiserver that kinds and control loops ask,
// beside those of the Kubernetes libraries.
//
// It is for the packages of this module. Its names follow those of Kubernetes and change with them.
package features

import (
	"fmt"
	"maps"
	"slices"
	"sync"

	"k8s.io/apimachinery/pkg/util/version"
	utilfeature "k8s.io/apiserver/pkg/util/feature"
	"k8s.io/component-base/featuregate"
)

// The gates. Each comment says what the gate is for, and names its KEP.
const (
	// HPAGeneration counts the changes of an autoscaler in metadata.generation.
	HPAGeneration featuregate.Feature = "HPAGeneration"
	// HPAScaleToZero lets an autoscaler with metrics of other objects scale to zero (KEP-2021).
	HPAScaleToZero featuregate.Feature = "HPAScaleToZero"
	// MaxUnavailableStatefulSet lets a StatefulSet replace several pods at once (KEP-961).
	MaxUnavailableStatefulSet featuregate.Feature = "MaxUnavailableStatefulSet"
	// VolumeLimitScaling lets a CSI driver keep pods from nodes on which it is missing (KEP-5030).
	VolumeLimitScaling featuregate.Feature = "VolumeLimitScaling"
)

// Enabled reports whether a gate of this package is on. Gates are shared by the whole process.
func Enabled(gate featuregate.Feature) bool {
	if err := register(); err != nil {
		panic(err) // two libraries of this program disagree about a gate
	}
	return utilfeature.DefaultFeatureGate.Enabled(gate)
}

// Register makes the gates known to the Kubernetes libraries, so that they can be set and have
// metrics. Gates that another library has registered stay as they are.
func Register() error { return register() }

var register = sync.OnceValue(func() error {
	gates := utilfeature.DefaultMutableFeatureGate
	known := gates.GetAllVersioned()
	missing := history()
	maps.DeleteFunc(missing, func(gate featuregate.Feature, _ featuregate.VersionedSpecs) bool {
		_, ok := known[gate]
		return ok
	})
	if err := gates.AddVersioned(missing); err != nil {
		return fmt.Errorf("register feature gates: %w", err)
	}
	return nil
})

// Names returns the names of all gates of this package, sorted.
func Names() []featuregate.Feature { return slices.Sorted(maps.Keys(history())) }

// history returns the stages and defaults of the gates by the version of Kubernetes that brought
// them.
func history() map[featuregate.Feature]featuregate.VersionedSpecs {
	alpha := func(since string) featuregate.FeatureSpec {
		return featuregate.FeatureSpec{PreRelease: featuregate.Alpha, Version: version.MustParse(since)}
	}
	beta := func(since string, on bool) featuregate.FeatureSpec {
		return featuregate.FeatureSpec{
			PreRelease: featuregate.Beta, Default: on, Version: version.MustParse(since),
		}
	}
	return map[featuregate.Feature]featuregate.VersionedSpecs{
		HPAGeneration:             {beta("1.37", true)},
		HPAScaleToZero:            {alpha("1.16"), beta("1.37", true)},
		MaxUnavailableStatefulSet: {alpha("1.24"), beta("1.35", false), beta("1.37", true)},
		VolumeLimitScaling:        {alpha("1.35"), beta("1.37", true)},
	}
}
