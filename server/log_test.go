package server

import (
	"context"
	"errors"
	"io"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/go-logr/logr"
	"github.com/go-logr/logr/funcr"
	"k8s.io/klog/v2"
)

// TestMain keeps the klog messages of the Kubernetes libraries out of the output of tests and
// benchmarks. klog is global to the process, so a control plane does not silence it.
func TestMain(m *testing.M) {
	klog.LogToStderr(false)
	klog.SetOutput(io.Discard)
	m.Run()
}

// record is a log that is safe for concurrent use.
type record struct {
	mu    sync.Mutex
	lines []string
}

func (r *record) add(line string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.lines = append(r.lines, line)
}

func (r *record) has(part string) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return slices.ContainsFunc(r.lines, func(line string) bool { return strings.Contains(line, part) })
}

func (r *record) Write(p []byte) (int, error) {
	r.add(string(p))
	return len(p), nil
}

func (r *record) logger(verbosity int) logr.Logger {
	return funcr.New(func(prefix, args string) {
		r.add(prefix + ": " + args)
	}, funcr.Options{Verbosity: verbosity})
}

func startAndStop(t *testing.T, options Options) {
	t.Helper()
	s, err := New(options)
	if err == nil {
		err = errors.Join(s.Start(t.Context()), s.Stop(context.WithoutCancel(t.Context())))
	}
	if err != nil {
		t.Fatal(err)
	}
}

func TestKlogStaysTheProcesses(t *testing.T) { // not parallel: it changes klog
	var process record
	klog.SetOutput(&process)
	defer klog.SetOutput(io.Discard)
	startAndStop(t, Options{})
	klog.Info("the host's own controller")
	klog.Flush()
	if !process.has("the host's own controller") {
		t.Error("a control plane silenced klog for the whole process")
	}
}

func TestLogTakesWhatIsSaid(t *testing.T) {
	t.Parallel()
	var log record
	startAndStop(t, Options{Log: log.logger(2)})
	for _, part := range []string{
		"etcd: ",           // from etcd, which has a separate logger
		"Caches populated", // from an informer, through the context that it was started with
	} {
		if !log.has(part) {
			t.Errorf("the log does not contain %q", part)
		}
	}
}
