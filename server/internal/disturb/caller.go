package disturb

import (
	"fmt"
	"path/filepath"
	"runtime"
	"strings"
)

// libraries begin the names of functions that are never a controller's own.
var libraries = []string{
	"k8s.io/", "sigs.k8s.io/", "net/http.", "net/http/", "runtime.", "golang.org/x/", "io.",
	"context.",
	"github.com/kinproc/kinproc/server/internal/", "github.com/kinproc/kinproc/server/servertest.",
	"github.com/kinproc/kinproc/server/cli.", // the proxy of a program
}

// caller returns the line of the controller that sends a request. It is empty for programs, whose
// requests come over a connection.
func caller() string {
	var pcs [64]uintptr
	frames := runtime.CallersFrames(pcs[:runtime.Callers(2, pcs[:])])
	for {
		frame, more := frames.Next()
		if !isLibrary(frame.Function) {
			file := filepath.Join(filepath.Base(filepath.Dir(frame.File)), filepath.Base(frame.File))
			_, function, _ := strings.Cut(frame.Function[strings.LastIndex(frame.Function, "/")+1:], ".")
			return fmt.Sprintf("%s:%d, in %s", filepath.ToSlash(file), frame.Line, function)
		}
		if !more {
			return ""
		}
	}
}

func isLibrary(function string) bool {
	for _, l := range libraries {
		if strings.HasPrefix(function, l) {
			return true
		}
	}
	return function == ""
}
