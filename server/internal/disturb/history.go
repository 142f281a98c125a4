package disturb

import (
	"context"
	"slices"
	"strconv"
	"strings"

	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/rest"

	"github.com/kinproc/kinproc/chain/history"
)

// A finding has the versions of at most maxObjects objects, maxVersions of each, and as a text
// maxChanges changes of each version.
const (
	maxObjects  = 3
	maxVersions = 10
	maxChanges  = 5
)

// versionsOf returns the versions of the objects that problems are about. It is an addition to a
// finding: what was only created, or has no history, is left out. The controller and the user, who
// have one name in the control plane, are told apart by the revisions of their writes.
func versionsOf(
	ctx context.Context, admin *rest.Config, o *Outcome, problems []Problem,
) []Versions {
	writers := map[string]Actor{}
	for _, e := range o.trace {
		if e.revision != "" {
			writers[e.revision] = e.By
		}
	}
	var all []Versions
	for _, object := range concerned(problems) {
		i := slices.IndexFunc(o.all, func(r schema.GroupVersionResource) bool {
			return r.GroupResource().String() == object.Resource
		})
		if i < 0 || strings.Contains(object.Name, "*") {
			continue // the name is generated
		}
		found, err := history.Get(ctx, admin, history.PathOf(o.all[i], object.Namespace, object.Name),
			history.Options{Limit: maxVersions})
		if err != nil || len(found.Versions) < 2 && !found.More {
			continue // it was only created
		}
		for i := range found.Versions {
			v := &found.Versions[i]
			v.Object = nil // its changes are told
			if by, ok := writers[strconv.FormatInt(v.Revision, 10)]; ok && v.Writer != nil {
				v.Writer.User = by.String()
			}
		}
		all = append(all, Versions{Object: object, Earlier: found.More, Versions: found.Versions})
		if len(all) == maxObjects {
			break
		}
	}
	return all
}

// concerned returns the objects that problems are about, those last that only follow from others.
func concerned(problems []Problem) []Object {
	var causes, derived []Object
	for _, p := range problems {
		for _, d := range p.Objects {
			if slices.Contains(causes, d.Object) || slices.Contains(derived, d.Object) {
				continue
			}
			if isDerived(schema.ParseGroupResource(d.Resource)) {
				derived = append(derived, d.Object)
			} else {
				causes = append(causes, d.Object)
			}
		}
	}
	return slices.Concat(causes, derived)
}
