package server

import (
	"fmt"
	"maps"
	"slices"

	genericfeatures "k8s.io/apiserver/pkg/features"
	utilfeature "k8s.io/apiserver/pkg/util/feature"
	flowcontrolmetrics "k8s.io/apiserver/pkg/util/flowcontrol/metrics"
	"k8s.io/component-base/featuregate"
)

// This file holds the only writes to process-wide variables of the Kubernetes libraries.

// setFeatureGates sets feature gates of the Kubernetes libraries, and registers their metrics and
// those of flow control, which would race with the first servers of a process otherwise. The feature
// gates are shared by the whole process.
func setFeatureGates(gates map[string]bool) error {
	if len(gates) > 0 {
		gates = maps.Clone(gates)
		gates[storageVersionAPI] = false // AllAlpha would enable it
		if err := utilfeature.DefaultMutableFeatureGate.SetFromMap(gates); err != nil {
			return fmt.Errorf("set feature gates: %w", err)
		}
	}
	utilfeature.DefaultMutableFeatureGate.AddMetrics()
	flowcontrolmetrics.Register()
	return nil
}

// storageVersionAPI is a feature for upgrading several kube-apiservers. It waits for objects that
// none of the Kubernetes libraries creates, and ends the process when that wait is canceled.
const storageVersionAPI = string(genericfeatures.StorageVersionAPI)

// checkFeatureGates returns the error that setFeatureGates would return.
func checkFeatureGates(gates map[string]bool) error {
	known := utilfeature.DefaultMutableFeatureGate.GetAll()
	for _, name := range slices.Sorted(maps.Keys(gates)) {
		spec, ok := known[featuregate.Feature(name)]
		if !ok {
			return fmt.Errorf("there is no feature %q", name)
		}
		if name == storageVersionAPI && gates[name] {
			return fmt.Errorf("%s is not supported", name)
		}
		if spec.LockToDefault && spec.Default != gates[name] {
			return fmt.Errorf("%s is always %t", name, spec.Default)
		}
	}
	return nil
}
