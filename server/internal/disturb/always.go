package disturb

import (
	"context"
	"fmt"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/watch"

	"github.com/kinproc/kinproc/server/internal/invariant"
)

// checkAlways notes what has not always been true as problems, which nobody can put right any more.
func (s *Session) checkAlways(ctx context.Context) error {
	violations, err := s.always.Check(ctx)
	if err != nil {
		return fmt.Errorf("what is to be always true: %w", err)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, v := range violations {
		text := "Not always true: " + v.Rule + "\n  "
		if v.Err != nil {
			text += "error: " + v.Err.Error() + ", "
		}
		p := Problem{Kind: NotAlways, Message: text + s.causeLocked(v)}
		if v.Type != "" {
			p.Objects = []Difference{{Object: objectOf(keyOf(v))}}
		}
		s.problems = append(s.problems, p)
	}
	return nil
}

// causeLocked says which write made the revision at which a rule was not true.
func (s *Session) causeLocked(v invariant.Violation) string {
	if v.Type == "" {
		return "at the start"
	}
	object := keyOf(v)
	for i := len(s.trace) - 1; i >= 0; i-- {
		e := s.trace[i]
		if e.By == Others || !e.Changed {
			continue
		}
		// The answer to a deletion need not have its revision.
		deletion := v.Type == watch.Deleted && e.Op.Verb == "delete" && e.Op.key() == object
		if e.revision != v.Revision && !deletion {
			continue
		}
		by := "the controller"
		if e.By == User {
			by = "the user"
		}
		text := fmt.Sprintf("after: %s, by %s", e.Op, by)
		if e.Caller != (Caller{}) {
			text += "\n  at: " + e.Caller.String()
		}
		return text
	}
	what := map[watch.EventType]string{
		watch.Added: "creation", watch.Modified: "change", watch.Deleted: "deletion",
	}[v.Type]
	return fmt.Sprintf("after the %s of %s", what, object)
}

// keyOf returns the key of the object whose change made a rule untrue.
func keyOf(v invariant.Violation) string {
	return key(v.Resource.GroupResource(), &metav1.ObjectMeta{Namespace: v.Namespace, Name: v.Name})
}
