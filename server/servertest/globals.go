package servertest

import (
	"flag"
	"io"
	"sync"

	"k8s.io/klog/v2"
)

// quietKlog discards what the Kubernetes libraries write to klog, once. klog exists once per
// process, and so does this.
var quietKlog = sync.OnceFunc(discardKlog)

// discardKlog makes klog discard what it would write to standard error. It does nothing if a flag
// of klog is not at its default. A logger that the process sets with klog.SetLogger, earlier or
// later, is not affected, because klog writes to nothing else then.
func discardKlog() {
	flags := flag.NewFlagSet("klog", flag.ContinueOnError)
	klog.InitFlags(flags)
	for name, unset := range map[string]string{
		"v": "0", "vmodule": "", "logtostderr": "true", "alsologtostderr": "false", "log_file": "",
		"log_dir": "",
	} {
		if f := flags.Lookup(name); f == nil || f.Value.String() != unset {
			return
		}
	}
	klog.SetOutput(io.Discard)
	klog.LogToStderr(false)
	_ = flags.Set("stderrthreshold", "FATAL") // errors go to standard error otherwise
}
