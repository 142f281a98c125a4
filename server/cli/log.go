package cli

import (
	"flag"
	"io"
	"strconv"

	"github.com/go-logr/logr"
	"k8s.io/klog/v2"
)

// setLogging configures klog, which exists once per process and which all Kubernetes libraries log
// to. It returns the logger for everything else. At verbosity 0 nothing is logged, because problems
// are returned as an error or a Status. Verbosity 1 is klog's 0.
func setLogging(verbosity int) logr.Logger {
	flags := flag.NewFlagSet("klog", flag.ContinueOnError)
	klog.InitFlags(flags)
	set := func(name, value string) { _ = flags.Set(name, value) } // the names are klog's own
	if verbosity > 0 {
		set("v", strconv.Itoa(verbosity-1))
		return klog.NewKlogr()
	}
	set("logtostderr", "false")
	set("alsologtostderr", "false")
	set("stderrthreshold", "FATAL")
	klog.SetOutput(io.Discard)
	return logr.Discard()
}
