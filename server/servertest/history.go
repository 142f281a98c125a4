package servertest

import (
	"context"
	"fmt"
	"net/url"
	"slices"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/kinproc/kinproc/chain/history"
	"github.com/kinproc/kinproc/server"
)

// History returns the versions of an object of c that etcd still keeps, in order, the newest
// hundred at most: when they were written, by whom, and what changed. The last one may be the
// deletion of the object. Without a name, it returns the versions of all objects of the resource in
// the namespace, which is empty for all namespaces and for cluster-scoped objects. The data of
// Secrets is left out. c must be a kinproc control plane.
func History(
	t TB, c API, resource schema.GroupVersionResource, namespace, name string,
) []history.Version {
	t.Helper()
	ctx, cancel := helperContext(t)
	defer cancel()
	path := history.PathOf(resource, namespace, name)
	found, err := history.Get(ctx, c.RESTConfig(), path, history.Options{})
	if err != nil {
		t.Fatalf("servertest: history: %v", err)
	}
	return found.Versions
}

// A story has at most maxVersions versions for each of maxNamespaces namespaces, and maxChanges
// changes of each version. Those that tests and controllers have written are looked for among the
// latest searchedVersions.
const (
	maxVersions      = 20
	maxNamespaces    = 5
	maxChanges       = 10
	searchedVersions = 500
)

// story returns the last versions of the objects in some namespaces that tests and controllers have
// written, with what changed, and how many the control plane itself has.
func story(s *server.Server, namespaces []string) string {
	config, err := s.InProcessConfig("servertest", "system:masters")
	if err != nil {
		return err.Error()
	}
	ctx, cancel := context.WithTimeout(context.Background(), storyTimeout)
	defer cancel()
	var b strings.Builder
	for _, namespace := range namespaces {
		found, err := history.Get(ctx, config, "/api/v1/namespaces/"+url.PathEscape(namespace),
			history.Options{Contents: true, Limit: searchedVersions})
		if err != nil {
			fmt.Fprintf(&b, "namespace %s: %v\n", namespace, err)
			continue
		}
		all := len(found.Versions)
		versions := slices.DeleteFunc(found.Versions, func(v history.Version) bool {
			return v.Writer != nil && isOwn(v.Writer.User)
		})
		own, earlier := all-len(versions), found.More
		if n := len(versions) - maxVersions; n > 0 {
			versions, earlier = versions[n:], true
		}
		if earlier {
			fmt.Fprintf(&b, "… earlier versions in %s\n", namespace)
		}
		for _, v := range versions {
			client := ""
			if v.Writer != nil {
				client = clientOf(v.Writer.User, v.Writer.UserAgent)
			}
			b.WriteString(oneLine(v.Line(client)) + "\n")
			for _, line := range v.Summary(maxChanges) {
				b.WriteString("    " + oneLine(line) + "\n")
			}
		}
		if own > 0 {
			fmt.Fprintf(&b, "… versions by control loops and kubelets: %d\n", own)
		}
	}
	return b.String()
}

// storyTimeout is how long a failed test waits for the versions of its objects.
const storyTimeout = 10 * time.Second
