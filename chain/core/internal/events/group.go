// Package events declares the group events.k8s.io, which shows the events of the core group in another form.
package events

import (
	eventsv1 "k8s.io/api/events/v1"

	"github.com/kinproc/kinproc/chain/kind"
)

// Group is events.k8s.io. It has no kind of its own: its events are a version of those that chain/core/core declares.
func Group() kind.Group {
	return kind.Group{
		Name:     eventsv1.GroupName,
		Versions: []kind.GroupVersion{{Version: "v1", AddToScheme: eventsv1.AddToScheme}},
	}
}
