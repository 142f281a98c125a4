package server

import (
	"flag"
	"fmt"
	"io"
	"maps"
	"os"
	"slices"
	"strconv"
	"sync"

	"go.uber.org/zap"
	"go.uber.org/zap/zapcore"
	genericfeatures "k8s.io/apiserver/pkg/features"
	utilfeature "k8s.io/apiserver/pkg/util/feature"
	"k8s.io/component-base/featuregate"
	"k8s.io/klog/v2"
)

// This file holds the only writes to variables of the Kubernetes libraries that the whole process shares.

var quietOnce sync.Once

// setLogging directs klog, which all Kubernetes libraries log to and of which a process has one. The first control plane of a process
// decides: at verbosity 0 nothing is logged, for what went wrong comes back as an error or a Status.
func setLogging(verbosity int) {
	quietOnce.Do(func() {
		flags := flag.NewFlagSet("klog", flag.ContinueOnError)
		klog.InitFlags(flags)
		set := func(name, value string) { _ = flags.Set(name, value) } // the names are klog's own
		if verbosity > 0 {
			set("v", strconv.Itoa(verbosity-1))
			return
		}
		set("logtostderr", "false")
		set("alsologtostderr", "false")
		set("stderrthreshold", "FATAL")
		klog.SetOutput(io.Discard)
	})
}

// etcdLogger is not shared, but belongs to what the above does for the other libraries.
func etcdLogger(verbosity int) *zap.Logger {
	if verbosity == 0 {
		return zap.NewNop()
	}
	level := zapcore.InfoLevel
	if verbosity > debugVerbosity {
		level = zapcore.DebugLevel
	}
	encoder := zapcore.NewConsoleEncoder(zap.NewDevelopmentEncoderConfig())
	return zap.New(zapcore.NewCore(encoder, zapcore.Lock(os.Stderr), level))
}

// debugVerbosity is where Kubernetes' conventions for -v put what only debugging needs.
const debugVerbosity = 4

// setFeatureGates switches features of the Kubernetes libraries, of which a process has one set, and shows in /metrics which are on.
func setFeatureGates(gates map[string]bool) error {
	if len(gates) > 0 {
		gates = maps.Clone(gates)
		gates[storageVersionAPI] = false // also with AllAlpha
		if err := utilfeature.DefaultMutableFeatureGate.SetFromMap(gates); err != nil {
			return fmt.Errorf("--feature-gates: %w", err)
		}
	}
	utilfeature.DefaultMutableFeatureGate.AddMetrics()
	return nil
}

// storageVersionAPI is for upgrades of several kube-apiservers. What it waits for after the start is made by none of the Kubernetes
// libraries, and when the wait is cancelled, they end the process.
const storageVersionAPI = string(genericfeatures.StorageVersionAPI)

// checkFeatureGates finds out whether setFeatureGates would succeed.
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
