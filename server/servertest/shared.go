package servertest

import (
	"errors"
	"fmt"
	"os"
	"runtime"
	"sync"
)

// common is the cluster that [Shared] returns. It is the only state of this package that outlives a
// test, because TestMain and the tests of a binary have no other way to share something.
var common sharedCluster

type sharedCluster struct {
	mu sync.Mutex // held during the start too, for which all tests wait
	// start starts the cluster. It is nil unless Main runs the tests.
	start func(TB) API
	t     *commonTB // nil until the start has begun
	api   API
}

// Main runs the tests of a package that use [Shared], stops the common control plane if one was
// started, and exits with the tests' code:
//
//	func TestMain(m *testing.M) { servertest.Main(m) }
//
// The exit code is 1 if the tests passed and the stop failed.
func Main(m interface{ Run() int }) {
	MainWith(m, func(t TB) API { return Cluster(t) })
}

// MainWith is [Main] with a function that starts the cluster and puts into it what the tests have
// in common. The first call of [Shared] calls the function, so it is not called if no test needs
// it.
//
//	func TestMain(m *testing.M) {
//		servertest.MainWith(m, func(t servertest.TB) servertest.API {
//			c := servertest.Cluster(t, servertest.WithoutControllers)
//			servertest.CRDs(t, c, servertest.Files("../config/crd/bases"))
//			return c
//		})
//	}
//
// For that function, the test that t stands for ends when all tests have ended. If the function
// fails, so does every test that calls Shared.
func MainWith(m interface{ Run() int }, start func(t TB) API) {
	os.Exit(common.run(m, start))
}

// Shared returns the cluster that all tests of the package share, and a namespace of the test's
// own in it. The first call starts the cluster, in which the helpers then act. TestMain must call
// [Main] or [MainWith].
//
//	func TestController(t *testing.T) {
//		t.Parallel()
//		c, namespace := servertest.Shared(t)
//		…
//	}
//
// The namespace is deleted when the test ends. What a test creates outside of it, other tests see.
// If the test fails, the log of the control plane during the test is printed, the versions of the
// objects in the test's namespace, and the requests for that namespace and for the cluster as a
// whole; see [Run].
func Shared(t TB) (c API, namespace string) {
	t.Helper()
	if inBubble(t) {
		t.Fatalf("servertest: Shared in a bubble of testing/synctest: the common cluster is outside, " +
			"use Run with the option servertest.InBubble")
	}
	c, recorders, err := common.get()
	if err != nil {
		t.Fatalf("servertest: common cluster: %v", err)
	}
	namespace = Namespace(t, c)
	if f, ok := t.(failing); ok {
		for _, r := range recorders {
			printed := r.report(f, namespace)
			t.Cleanup(func() {
				printed.look()
				printed.print()
			})
		}
	}
	return c, namespace
}

func (s *sharedCluster) run(m interface{ Run() int }, start func(TB) API) int {
	s.mu.Lock()
	s.start = start
	s.mu.Unlock()
	code := m.Run()
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.t == nil {
		return code
	}
	started := s.api != nil
	s.t.end()
	// Tests have reported why the start failed. Nobody has reported yet why the end did.
	if err := s.t.err(); err != nil && started {
		fmt.Fprintf(os.Stderr, "%v\n", err)
		code = max(code, 1)
	}
	return code
}

// get returns the cluster. The first call starts it.
func (s *sharedCluster) get() (API, []*recorder, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.start == nil {
		return nil, nil, errors.New("add this to the tests of the package: " +
			"func TestMain(m *testing.M) { servertest.Main(m) }")
	}
	if s.t == nil {
		s.t = &commonTB{}
		var api API
		inGoroutine(func() { api = s.start(s.t) })
		if s.t.err() == nil {
			s.api = api
		}
	}
	if err := s.t.err(); err != nil {
		return nil, nil, err
	}
	if s.api == nil {
		return nil, nil, errors.New("the function for MainWith returned none")
	}
	return s.api, s.t.recorders, nil
}

// commonTB is the test that the common cluster belongs to. It ends after all others.
type commonTB struct {
	recorders []*recorder

	mu       sync.Mutex
	cleanups []func()
	errs     []error
}

func (t *commonTB) Helper() {}

func (t *commonTB) Cleanup(f func()) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.cleanups = append(t.cleanups, f)
}

func (t *commonTB) Errorf(format string, args ...any) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.errs = append(t.errs, fmt.Errorf(format, args...))
}

func (t *commonTB) Fatalf(format string, args ...any) {
	t.Errorf(format, args...)
	runtime.Goexit()
}

// inGoroutine calls f in a goroutine of its own, which Fatalf ends, and waits for it.
func inGoroutine(f func()) {
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		f()
	}()
	<-ended
}

func (t *commonTB) err() error {
	t.mu.Lock()
	defer t.mu.Unlock()
	return errors.Join(t.errs...)
}

// end calls the cleanup functions, the last one first. They may add others.
func (t *commonTB) end() {
	for {
		t.mu.Lock()
		last := len(t.cleanups) - 1
		if last < 0 {
			t.mu.Unlock()
			return
		}
		f := t.cleanups[last]
		t.cleanups = t.cleanups[:last]
		t.mu.Unlock()
		inGoroutine(f)
	}
}
