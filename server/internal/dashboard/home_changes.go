package dashboard

import (
	"cmp"
	"context"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/kinproc/kinproc/chain/history"
)

const (
	// changesSince is how far back changes are shown.
	changesSince = time.Minute
	// changesRead bounds the versions that are read for them.
	changesRead = 200
	// changesShown bounds the changes.
	changesShown = 60
	// namespacesFollowed bounds in how many namespaces changes are looked for.
	namespacesFollowed = 25
)

// change is what one writer has done to objects of a kind in a namespace.
type change struct {
	version          // the newest one, without what it changes
	Names   []string `json:"names"`          // of some of the objects
	Objects int      `json:"objects"`        // how many
	Times   int      `json:"times"`          // how many versions
	Says    string   `json:"says,omitempty"` // what was changed, in one line
}

// dull matches the fields that say less than others of the same version: they follow from them, or
// nobody reads them.
var dull = regexp.MustCompile(`Time\b|[gG]eneration|GracePeriod|annotations|uid|UID|conditions|` +
	`resourceVersion|finalizers|[cC]ontainerStatuses(\[\d+\])?$|containerID|imageID|(start|finish)edAt|` +
	`allocatedResources|volumeMounts|\.user\b|\.status\.(hostIP|podIP|qosClass|resources|used)`)

// isNoise reports whether a version is of an object that is written all the time, or only follows
// from other versions.
func isNoise(v history.Version) bool {
	switch v.Resource {
	case "leases.coordination.k8s.io", "events", "events.events.k8s.io":
		return true
	case "resourcequotas": // what is used
		return len(v.Changes) > 0 && !slices.ContainsFunc(v.Changes, func(c history.Change) bool {
			return !strings.HasPrefix(c.Path, ".status")
		})
	}
	return false
}

// telling returns the path and the line of the change that says most, or nothing.
func telling(changes []history.Change, lines []string) (path, line string) {
	i := slices.IndexFunc(changes, func(c history.Change) bool {
		// That an object is being deleted is told when it begins, not when its time is another one.
		later := c.Before != nil && c.Path == ".metadata.deletionTimestamp"
		return !later && !dull.MatchString(c.Path)
	})
	if i < 0 {
		return "", ""
	}
	return changes[i].Path, lines[i]
}

// fold puts versions together, newest first, that one writer wrote of the same kind in the same
// namespace, with a change of the same field.
func fold(versions []history.Version) []change {
	type same struct{ event, resource, namespace, user, as, client, manager, path string }
	list, at := []change{}, map[same]int{}
	seen := map[same]map[string]bool{}
	for _, v := range versions {
		d := describeVersion(v)
		path, line := telling(v.Changes, d.Changes)
		d.Changes = nil
		key := same{d.Event, d.Resource, d.Namespace, d.User, d.As, d.Client, d.Manager, path}
		i, ok := at[key]
		if !ok {
			i = len(list)
			at[key], seen[key] = i, map[string]bool{}
			list = append(list, change{version: d, Says: line})
		}
		c := &list[i]
		c.Times++
		if !seen[key][v.Name] {
			seen[key][v.Name] = true
			if c.Objects++; c.Objects <= objectsShown {
				c.Names = append(c.Names, v.Name)
			}
		}
	}
	return list[:min(len(list), changesShown)]
}

// changes returns what has changed lately, newest first.
func (s *Server) changes(ctx context.Context) ([]change, error) {
	namespaces, err := s.all(ctx, clusterScoped[0])
	if err != nil {
		return []change{}, err
	}
	var list []history.Version
	since := time.Now().Add(-changesSince)
	add := func(path string, contents bool) error {
		h, err := history.Get(ctx, s.config, path, history.Options{
			Contents: contents, Limit: changesRead,
		})
		if err != nil {
			return err
		}
		for _, v := range h.Versions {
			if v.Time != nil && v.Time.After(since) && !isNoise(v) {
				list = append(list, v)
			}
		}
		return nil
	}
	for _, n := range namespaces[:min(len(namespaces), namespacesFollowed)] {
		if n.GetName() == "kube-node-lease" {
			continue // nothing but leases
		}
		if err := add(history.PathOf(clusterScoped[0], "", n.GetName()), true); err != nil {
			return []change{}, err
		}
	}
	for _, resource := range clusterScoped {
		if err := add(history.PathOf(resource, "", ""), false); err != nil {
			return []change{}, err
		}
	}
	slices.SortFunc(list, func(a, b history.Version) int {
		return cmp.Compare(b.Revision, a.Revision)
	})
	return fold(list[:min(len(list), changesRead)]), nil
}
