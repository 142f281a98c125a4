package server

import (
	"fmt"
	"maps"
	"slices"

	genericfeatures "k8s.io/apiserver/pkg/features"
	utilfeature "k8s.io/apiserver/pkg/util/feature"
	"k8s.io/component-base/featuregate"
)

// This file holds the only writes to variables of the Kubernetes libraries that the whole process
// shares.

// setFeatureGates switches features of the Kubernetes libraries and shows in /metrics which are on.
// A process has one set of features.
func setFeatureGates(gates map[string]bool) error {
	if len(gates) > 0 {
		gates = maps.Clone(gates)
		gates[storageVersionAPI] = false // AllAlpha would switch it on
		if err := utilfeature.DefaultMutableFeatureGate.SetFromMap(gates); err != nil {
			return fmt.Errorf("set feature gates: %w", err)
		}
	}
	utilfeature.DefaultMutableFeatureGate.AddMetrics()
	return nil
}

// storageVersionAPI is a feature for upgrades of several kube-apiservers. It waits for objects that
// none of the Kubernetes libraries creates. When that wait is canceled, it ends the process.
const storageVersionAPI = string(genericfeatures.StorageVersionAPI)

// checkFeatureGates reports why setFeatureGates would fail.
func checkFeatureGates(gates map[string]bool) error {
	known := utilfeature.DefaultMutableFeatureGate.GetAll()
	for _, name := range slices.Sorted(maps.Keys(gates)) {
		spec, ok := known[featuregate.Feature(name)]
		if !ok {
			return fmt.Errorf("no feature is called %q", name)
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
