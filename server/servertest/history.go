package servertest

import (
	"context"
	"fmt"
	"net/url"
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
// changes of each version.
const (
	maxVersions   = 20
	maxNamespaces = 5
	maxChanges    = 10
)

// story returns the last versions of the objects in some namespaces, with what changed.
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
			history.Options{Contents: true, Limit: maxVersions})
		if err != nil {
			fmt.Fprintf(&b, "namespace %s: %v\n", namespace, err)
			continue
		}
		if found.More {
			fmt.Fprintf(&b, "… earlier versions in %s\n", namespace)
		}
		for _, v := range found.Versions {
			b.WriteString(oneLine(versionLine(v)) + "\n")
			for i, c := range v.Changes {
				if i == maxChanges {
					fmt.Fprintf(&b, "    … %d more changes\n", len(v.Changes)-i)
					break
				}
				b.WriteString("    " + oneLine(c.String()) + "\n")
			}
		}
	}
	return b.String()
}

// storyTimeout is how long a failed test waits for the versions of its objects.
const storyTimeout = 10 * time.Second

// versionLine returns a line such as
//
//	15:04:05.000 revision 210: configmaps test-x7b2p/limits updated by jane (kubectl/v1.37.2, patch)
func versionLine(v history.Version) string {
	line := fmt.Sprintf("revision %d: %s %s/%s %s", v.Revision, v.Resource, v.Namespace, v.Name, v.Event)
	if v.Time != nil {
		line = v.Time.Local().Format(clock) + " " + line
	}
	if w := v.Writer; w != nil {
		what := w.Verb
		if w.Subresource != "" {
			what += " " + w.Subresource
		}
		line += fmt.Sprintf(" by %s (%s, %s)", w.User, clientOf(w.User, w.UserAgent), what)
	}
	return line
}
