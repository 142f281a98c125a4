package servertest

import (
	"context"
	"flag"
	"io"
	"sync"
	"time"

	utilruntime "k8s.io/apimachinery/pkg/util/runtime"
	"k8s.io/klog/v2"
)

// setGlobals changes what the Kubernetes libraries have once per process, with the first [Run].
var setGlobals = sync.OnceFunc(func() {
	discardKlog()
	shortenPauses()
})

// shortenPauses replaces the handler that lets a goroutine wait which reports an error less than a
// millisecond after the last error of the process. In a bubble of [testing/synctest], the last
// error may be years ahead, and the goroutine would wait for years.
func shortenPauses() {
	if h := utilruntime.ErrorHandlers; len(h) == 2 {
		utilruntime.ErrorHandlers = []utilruntime.ErrorHandler{
			h[0], func(context.Context, error, string, ...any) { time.Sleep(time.Millisecond) },
		}
	}
}

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
