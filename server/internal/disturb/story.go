package disturb

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/rest"

	"github.com/kinproc/kinproc/chain/history"
)

// The story of a finding has at most maxObjects objects, maxVersions versions of each, and
// maxChanges changes of each version.
const (
	maxObjects  = 3
	maxVersions = 10
	maxChanges  = 5
)

// story returns the versions of the objects whose end is not as in an undisturbed run, a text for
// each. It is an addition to a finding: an object without a history is left out.
func story(ctx context.Context, admin *rest.Config, l *Lesson, o *Outcome) []string {
	var all []string
	for _, k := range l.concerned(o) {
		resource, object, _ := strings.Cut(k, " ")
		i := slices.IndexFunc(o.all, func(r schema.GroupVersionResource) bool {
			return r.GroupResource().String() == resource
		})
		if i < 0 || strings.Contains(object, "*") {
			continue // the name is generated
		}
		namespace, name, namespaced := strings.Cut(object, "/")
		if !namespaced {
			namespace, name = "", object
		}
		found, err := history.Get(ctx, admin, history.PathOf(o.all[i], namespace, name),
			history.Options{Limit: maxVersions})
		if err != nil {
			continue
		}
		if all = append(all, versionsOf(k, found)); len(all) == maxObjects {
			break
		}
	}
	return all
}

// versionsOf returns the history of an object as a text.
func versionsOf(object string, h *history.History) string {
	var b strings.Builder
	fmt.Fprintf(&b, "The history of %s:", object)
	if h.More {
		b.WriteString("\n  … earlier versions")
	}
	for _, v := range h.Versions {
		fmt.Fprintf(&b, "\n  revision %d: %s", v.Revision, v.Event)
		if v.Writer != nil {
			client, _, _ := strings.Cut(v.Writer.UserAgent, " ")
			fmt.Fprintf(&b, " by %s at %s", cmp.Or(client, v.Writer.User), v.Time.Format("15:04:05.000"))
		}
		for i, c := range v.Changes {
			if i == maxChanges {
				fmt.Fprintf(&b, "\n    … %d more changes", len(v.Changes)-i)
				break
			}
			b.WriteString("\n    " + c.String())
		}
	}
	return b.String()
}
