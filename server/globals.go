package server

import (
	"context"
	"fmt"

	utilfeature "k8s.io/apiserver/pkg/util/feature"
	flowcontrolmetrics "k8s.io/apiserver/pkg/util/flowcontrol/metrics"
	"k8s.io/klog/v2"

	"github.com/kinproc/kinproc/server/internal/featuregates"
)

// This file holds the only writes to process-wide variables of the Kubernetes libraries.

// setFeatureGates sets feature gates of the Kubernetes libraries, and registers their metrics and
// those of flow control, which would race with the first servers of a process otherwise. The feature
// gates are shared by the whole process.
func setFeatureGates(gates map[string]bool) error {
	if set := registeredGates().Switches(gates); set != nil {
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
