// Package events declares the group events.k8s.io, another view of the events in the core group.
package events

import (
	eventsv1 "k8s.io/api/events/v1"

	"github.com/kinproc/kinproc/chain/kind"
)

// Group returns the API group events.k8s.io. It declares no kind: its events are a version of the
// events that chain/core/internal/legacy declares.
func Group() kind.Group {
	return kind.Group{
		Name:     eventsv1.GroupName,
		Versions: []kind.GroupVersion{{Version: "v1", AddToScheme: eventsv1.AddToScheme}},
	}
}
