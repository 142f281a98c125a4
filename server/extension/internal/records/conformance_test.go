package records

import (
	"context"
	"fmt"
	"strconv"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/serializer"
	"k8s.io/apiserver/pkg/apis/example"
	examplev1 "k8s.io/apiserver/pkg/apis/example/v1"
	"k8s.io/apiserver/pkg/storage"
	storagetesting "k8s.io/apiserver/pkg/storage/testing"
)

// newStore returns a store of pods.
func newStore(t *testing.T, p Persistence) *Store {
	t.Helper()
	scheme := runtime.NewScheme()
	metav1.AddToGroupVersion(scheme, metav1.SchemeGroupVersion)
	for _, add := range []func(*runtime.Scheme) error{example.AddToScheme, examplev1.AddToScheme} {
		if err := add(scheme); err != nil {
			t.Fatal(err)
		}
	}
	codec := serializer.NewCodecFactory(scheme).LegacyCodec(examplev1.SchemeGroupVersion)
	s, err := Open(t.Context(), p, codec, "/pods", func() runtime.Object { return &example.Pod{} })
	if err != nil {
		t.Fatal(err)
	}
	s.history.version = 1 // as that of a new etcd
	return s
}

// timeless ignores times to live, which one of the tests sets without need.
type timeless struct{ *Store }

func (s timeless) GuaranteedUpdate(
	ctx context.Context, key string, out runtime.Object, ignoreNotFound bool,
	preconditions *storage.Preconditions, try storage.UpdateFunc, cached runtime.Object,
) error {
	return s.Store.GuaranteedUpdate(ctx, key, out, ignoreNotFound, preconditions,
		func(in runtime.Object, m storage.ResponseMeta) (runtime.Object, *uint64, error) {
			updated, _, err := try(in, m)
			return updated, nil, err
		}, cached)
}

func newFiles(t *testing.T) *Files {
	t.Helper()
	f, err := OpenFiles(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := f.Close(); err != nil {
			t.Error(err)
		}
	})
	return f
}

// increase writes something else, as other resources do in etcd, and returns the version.
func increase(ctx context.Context, t *testing.T, s *Store) int64 {
	t.Helper()
	before, version := s.history.get("/else")
	now, done, err := s.history.write(ctx, "/else", before.version, fmt.Append(nil, version))
	if !done {
		t.Fatal(err)
	}
	return int64(now.version)
}

// compaction forgets the changes up to a version, as if there had been too many since.
func compaction(s *Store) storagetesting.Compaction {
	return func(ctx context.Context, t *testing.T, version string) {
		t.Helper()
		increase(ctx, t, s)
		until, err := strconv.ParseUint(version, 10, 64)
		if err != nil {
			t.Fatal(err)
		}
		s.history.mu.Lock()
		defer s.history.mu.Unlock()
		for len(s.history.changes) > 0 && s.history.changes[0].version <= until {
			s.history.changes = s.history.changes[1:]
		}
	}
}

// The tests of k8s.io/apiserver for storages, except those of encryption, of leases, and of how
// often etcd is called.
func TestConformance(t *testing.T) {
	t.Parallel()
	ctx := context.Background()
	key := func(context.Context, *testing.T, string) {}
	calls := func(*testing.T, uint64, uint64) {}
	for name, run := range map[string]func(context.Context, *testing.T, storage.Interface){
		"CreateExists":     storagetesting.RunTestCreateWithKeyExist,
		"Delete":           storagetesting.RunTestUnconditionalDelete,
		"DeleteIf":         storagetesting.RunTestConditionalDelete,
		"DeleteHint":       storagetesting.RunTestDeleteWithSuggestion,
		"DeleteRace":       storagetesting.RunTestDeleteWithConflict,
		"DeleteOld":        storagetesting.RunTestDeleteWithSuggestionAndConflict,
		"DeleteGone":       storagetesting.RunTestDeleteWithSuggestionOfDeletedObject,
		"DeleteValid":      storagetesting.RunTestValidateDeletionWithSuggestion,
		"DeletePrecond":    storagetesting.RunTestPreconditionalDeleteWithSuggestion,
		"ListPrefix":       storagetesting.RunTestGetListRecursivePrefix,
		"ListPaging":       storagetesting.RunTestListPaging,
		"ListNamespaced":   storagetesting.RunTestNamespaceScopedList,
		"UpdateRace":       storagetesting.RunTestGuaranteedUpdateWithConflict,
		"UpdateHint":       storagetesting.RunTestGuaranteedUpdateWithSuggestionAndConflict,
		"KeySchema":        storagetesting.RunTestKeySchema,
		"Watch":            storagetesting.RunTestWatch,
		"WatchNonZero":     storagetesting.RunTestWatchFromNonZero,
		"WatchDelete":      storagetesting.RunTestDeleteTriggerWatch,
		"WatchDelay":       storagetesting.RunTestDelayedWatchDelivery,
		"WatchCancel":      storagetesting.RunTestWatchContextCancel,
		"WatchTimeout":     storagetesting.RunTestWatcherTimeout,
		"WatchVersion":     storagetesting.RunTestWatchDeleteEventObjectHaveLatestRV,
		"WatchInitialized": storagetesting.RunTestWatchInitializationSignal,
		"WatchCluster":     storagetesting.RunTestClusterScopedWatch,
		"WatchNamespaced":  storagetesting.RunTestNamespaceScopedWatch,
		"InitialEventsOld": storagetesting.RunSendInitialEventsBackwardCompatibility,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			run(ctx, t, newStore(t, newFiles(t)))
		})
	}
	for name, run := range map[string]func(*testing.T, *Store){
		"Create": func(t *testing.T, s *Store) { storagetesting.RunTestCreate(ctx, t, s, key) },
		"Get":    func(t *testing.T, s *Store) { storagetesting.RunTestGet(ctx, t, timeless{s}) },
		"List": func(t *testing.T, s *Store) {
			storagetesting.RunTestList(ctx, t, s, compaction(s), false, nil)
		},
		"ListConsistent": func(t *testing.T, s *Store) {
			storagetesting.RunTestConsistentList(ctx, t, s,
				func(ctx context.Context, t *testing.T) int64 { return increase(ctx, t, s) }, false, true, false)
		},
		"ListOne": func(t *testing.T, s *Store) {
			storagetesting.RunTestGetListNonRecursive(ctx, t,
				func(ctx context.Context, t *testing.T) int64 { return increase(ctx, t, s) }, s)
		},
		"ListContinue": func(t *testing.T, s *Store) {
			storagetesting.RunTestListContinuation(ctx, t, s, calls)
		},
		"ListRare": func(t *testing.T, s *Store) {
			storagetesting.RunTestListPaginationRareObject(ctx, t, s, calls)
		},
		"ListFilter": func(t *testing.T, s *Store) {
			storagetesting.RunTestListContinuationWithFilter(ctx, t, s, calls)
		},
		"ListInconsistent": func(t *testing.T, s *Store) {
			storagetesting.RunTestListInconsistentContinuation(ctx, t, s, compaction(s))
		},
		"WatchZero": func(t *testing.T, s *Store) { storagetesting.RunTestWatchFromZero(ctx, t, s, compaction(s)) },
		"WatchBookmarks": func(t *testing.T, s *Store) {
			storagetesting.RunTestWatchDispatchBookmarkEvents(ctx, t, s, false)
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			run(t, newStore(t, newFiles(t)))
		})
	}
}

// These set a feature gate, which only one test at a time can do.
func TestInitialEvents(t *testing.T) {
	ctx := context.Background()
	for name, run := range map[string]func(context.Context, *testing.T, storage.Interface){
		"Semantics": storagetesting.RunWatchSemantics,
		"Extended":  storagetesting.RunWatchSemanticInitialEventsExtended,
		"Single":    storagetesting.RunWatchListMatchSingle,
	} {
		t.Run(name, func(t *testing.T) { run(ctx, t, newStore(t, newFiles(t))) })
	}
}
