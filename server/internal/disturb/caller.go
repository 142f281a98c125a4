package disturb

import (
	"fmt"
	"path"
	"path/filepath"
	"runtime"
	"strings"
)

// libraries begin the names of functions that are never a controller's own.
var libraries = []string{
	"k8s.io/", "sigs.k8s.io/", "net/http.", "net/http/", "runtime.", "golang.org/x/", "io.",
	"context.",
	"github.com/kinproc/kinproc/server/internal/", "github.com/kinproc/kinproc/server/servertest.",
	"github.com/kinproc/kinproc/server/cli/", // the proxy of a program
}

// Caller is a line of code. It is the zero value if it is not known.
type Caller struct {
	// File is absolute, or begins with the module if the binary was built with -trimpath.
	File     string `json:"file"`
	Line     int    `json:"line"`
	Function string `json:"function"`
}

// String returns text such as "stores/stores.go:186, in (*operator).set", or none.
func (c Caller) String() string {
	if c == (Caller{}) {
		return ""
	}
	file := filepath.ToSlash(c.File)
	return fmt.Sprintf("%s:%d, in %s", path.Join(path.Base(path.Dir(file)), path.Base(file)), c.Line,
		c.Function)
}

// caller returns the line of the controller that sends a request. It is unknown for programs, whose
// requests come over a connection.
func caller() Caller {
	var pcs [64]uintptr
	frames := runtime.CallersFrames(pcs[:runtime.Callers(2, pcs[:])])
	for {
		frame, more := frames.Next()
		if !isLibrary(frame.Function) {
			_, function, _ := strings.Cut(frame.Function[strings.LastIndex(frame.Function, "/")+1:], ".")
			return Caller{frame.File, frame.Line, function}
		}
		if !more {
			return Caller{}
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
