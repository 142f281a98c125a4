package kindtest

import (
	"encoding/json"
	"reflect"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/diff"

	"github.com/kinproc/kinproc/chain/kind"
)

const (
	maxInput = 1 << 15
	// maxTime is far more than any generated object takes, even on a busy machine.
	maxTime = 10 * time.Second
)

// Fuzz runs the functions of a kind on objects that are decoded from generated JSON. It fails if a
// function panics or takes too long, if defaulting a defaulted object changes it, if a valid object
// is refused when it is written again unchanged, or if a table row does not have one cell per
// column. Seeds are objects in JSON.
func Fuzz[T kind.Object](f *testing.F, k *kind.Kind[T], seeds ...string) {
	for _, s := range seeds {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		obj := reflect.New(reflect.TypeFor[T]().Elem()).Interface().(T)
		if len(data) > maxInput || json.Unmarshal(data, obj) != nil {
			return
		}
		start := time.Now()
		pass(t, k, obj)
		if took := time.Since(start); took > maxTime {
			t.Errorf("took %s", took)
		}
	})
}

// pass calls the functions that a create and an update call.
func pass[T kind.Object](t *testing.T, k *kind.Kind[T], obj T) {
	t.Helper()
	if k.Default != nil {
		k.Default(obj)
		again := clone(obj)
		if k.Default(again); !equality.Semantic.DeepEqual(obj, again) {
			t.Fatalf("defaulting twice changes the object:\n%s", diff.Diff(obj, again))
		}
	}
	if k.PrepareCreate != nil {
		k.PrepareCreate(t.Context(), obj)
	}
	if validate(t, k, obj) {
		var none T
		if k.Warnings != nil {
			k.Warnings(t.Context(), obj, none)
		}
		if k.Canonicalize != nil {
			k.Canonicalize(obj)
		}
		if old := clone(obj); k.ValidateUpdate != nil {
			if errs := k.ValidateUpdate(t.Context(), obj, old); len(errs) > 0 {
				t.Errorf("a valid object is refused when it is written again unchanged: %v", errs)
			}
		}
	}
	if k.Status != nil && k.Status.Validate != nil {
		_ = k.Status.Validate(t.Context(), obj, clone(obj)).ToAggregate()
	}
	if k.Table.Row != nil {
		if cells := k.Table.Row(obj); len(cells) != len(k.Table.Columns) {
			t.Errorf("a row has %d cells, but the table has %d columns", len(cells), len(k.Table.Columns))
		}
	}
	for _, value := range k.Fields {
		value(obj)
	}
}

func validate[T kind.Object](t *testing.T, k *kind.Kind[T], obj T) bool {
	if k.Validate == nil {
		return true
	}
	errs := k.Validate(t.Context(), obj)
	for _, err := range errs {
		_ = err.Error()
	}
	return len(errs) == 0
}

func clone[T kind.Object](obj T) T { return runtime.Object(obj).DeepCopyObject().(T) }
