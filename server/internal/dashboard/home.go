package dashboard

import (
	"context"
	"fmt"
	"net/http"
	"slices"
	"sync"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
)

// warningsShown bounds the warnings.
const warningsShown = 20

// home is what is wrong now and what has changed lately.
type home struct {
	Causes   []cause  `json:"causes"`  // what fails first
	Wrong    int      `json:"wrong"`   // how many objects are not well
	More     int      `json:"more"`    // causes that are not shown
	Healthy  []tally  `json:"healthy"` // how many objects of each kind were looked at
	Warnings table    `json:"warnings"`
	Changes  []change `json:"changes"` // newest first
	// Failed are sentences about what could not be found out.
	Failed []string `json:"failed"`
}

// tally counts the objects of a kind by their state.
type tally struct {
	Kind     string        `json:"kind"`
	Group    string        `json:"group"`
	Version  string        `json:"version"`
	Resource string        `json:"resource"`
	States   map[state]int `json:"states"`
}

// watchedKind is a kind whose objects have a state that matters, with the column that explains it.
type watchedKind struct {
	kind
	why string
}

var watched = []watchedKind{
	{kind{Version: "v1", Resource: "pods", Kind: "Pod"}, "Status"},
	{kind{Group: "apps", Version: "v1", Resource: "deployments", Kind: "Deployment"}, "Ready"},
	{kind{Group: "apps", Version: "v1", Resource: "statefulsets", Kind: "StatefulSet"}, "Ready"},
	{kind{Group: "apps", Version: "v1", Resource: "daemonsets", Kind: "DaemonSet"}, "Ready"},
	{kind{Group: "batch", Version: "v1", Resource: "jobs", Kind: "Job"}, "Status"},
	{kind{
		Version: "v1", Resource: "persistentvolumeclaims", Kind: "PersistentVolumeClaim",
	}, "Status"},
	{kind{Version: "v1", Resource: "nodes", Kind: "Node"}, "Status"},
	{kind{Version: "v1", Resource: "namespaces", Kind: "Namespace"}, "Status"},
	{kind{
		Group: "apiregistration.k8s.io", Version: "v1", Resource: "apiservices", Kind: "APIService",
	}, "Available"},
}

// named names an object.
type named struct {
	Group    string `json:"group"`
	Version  string `json:"version"`
	Resource string `json:"resource"`
	Kind     string `json:"kind"`
	Inside   string `json:"inside"`
	Name     string `json:"name"`
}

// looked is an object that was looked at.
type looked struct {
	named
	state state
	why   string // what its row says about its state
	parts string // how many of its parts are ready, such as 1/3
	uid   types.UID
	owner *metav1.OwnerReference
	node  string // on which it runs
}

func (k kind) looked(meta metav1.ObjectMeta, s state, why string) looked {
	return looked{
		named: named{k.Group, k.Version, k.Resource, k.Kind, meta.Namespace, meta.Name},
		state: s, why: why, uid: meta.UID, owner: ownerOf(&meta),
	}
}

// serveHome returns what is wrong and what has changed.
func (s *Server) serveHome(w http.ResponseWriter, r *http.Request) {
	h := home{Causes: []cause{}, Healthy: []tally{}, Changes: []change{}}
	ctx := r.Context()
	var mu sync.Mutex
	var asking sync.WaitGroup
	ask := func(what string, f func() error) {
		asking.Go(func() {
			if err := f(); err != nil {
				mu.Lock()
				defer mu.Unlock()
				h.Failed = append(h.Failed, fmt.Sprintf("%s: %s", what, err))
			}
		})
	}
	var all []looked
	tallies := make([]tally, len(watched))
	for i, k := range watched {
		ask(k.Kind, func() error {
			objects, states, err := s.look(ctx, k)
			mu.Lock()
			defer mu.Unlock()
			tallies[i] = tally{k.Kind, k.Group, k.Version, k.Resource, states}
			all = append(all, objects...)
			return err
		})
	}
	for what, find := range map[string]func(context.Context) ([]looked, error){
		"Definitions": s.definitionProblems, "Webhooks": s.webhookProblems,
		"ResourceQuotas": s.quotaProblems,
	} {
		ask(what, func() error {
			objects, err := find(ctx)
			mu.Lock()
			defer mu.Unlock()
			all = append(all, objects...)
			return err
		})
	}
	ask("Events", func() (err error) {
		h.Warnings, err = s.list(ctx, selection{resource: events, fields: "type=Warning"})
		h.Warnings.More += int64(max(0, len(h.Warnings.Rows)-warningsShown))
		h.Warnings.Rows = h.Warnings.Rows[:min(len(h.Warnings.Rows), warningsShown)]
		return err
	})
	ask("Changes", func() (err error) { h.Changes, err = s.changes(ctx); return err })
	asking.Wait()
	for _, t := range tallies {
		if len(t.States) > 0 {
			h.Healthy = append(h.Healthy, t)
		}
	}
	all, err := s.withOwners(ctx, all)
	if err != nil {
		h.Failed = append(h.Failed, fmt.Sprintf("Owners: %s", err))
	}
	h.Causes, h.Wrong = causesOf(all)
	h.More = max(0, len(h.Causes)-causesShown)
	h.Causes = h.Causes[:min(len(h.Causes), causesShown)]
	s.explainCauses(ctx, h.Causes)
	slices.Sort(h.Failed)
	sendJSON(w, h)
}

// look returns the objects of a kind, and counts them by their states.
func (s *Server) look(
	ctx context.Context, k watchedKind,
) (objects []looked, states map[state]int, err error) {
	t, states, err := s.statesOf(ctx, k.kind)
	if err != nil {
		return nil, nil, err
	}
	for _, r := range t.Rows {
		cell := t.cells(r)
		o := k.looked(r.metadata, r.State, cell(k.why))
		o.node = cell("Node")
		switch {
		case k.Resource == "daemonsets":
			o.parts = cell("Ready") + "/" + cell("Desired")
		case k.why == "Ready":
			o.parts = cell("Ready")
		}
		if o.parts != "" {
			o.why = o.parts + " ready"
		}
		if r.State == terminating {
			o.why = "being deleted"
			for _, f := range r.metadata.Finalizers {
				o.why += ", waits for the finalizer " + f
			}
		}
		objects = append(objects, o)
	}
	return objects, states, nil
}

// isWatched reports whether the objects of a kind have a state that matters.
func isWatched(k kind) bool {
	return slices.ContainsFunc(watched, func(w watchedKind) bool {
		return w.Group == k.Group && w.Resource == k.Resource
	})
}

// statesOf returns the objects of a kind, and counts them by their states.
func (s *Server) statesOf(ctx context.Context, k kind) (table, map[state]int, error) {
	t, err := s.list(ctx, selection{resource: k.resource()})
	if err != nil {
		return t, nil, err
	}
	states := map[state]int{}
	for _, r := range t.Rows {
		states[r.State]++
	}
	return t, states, nil
}

// clusterScoped are the resources without a namespace whose changes are shown.
var clusterScoped = []schema.GroupVersionResource{
	{Version: "v1", Resource: "namespaces"},
	nodes,
	{Version: "v1", Resource: "persistentvolumes"},
	definitions,
	apiServices,
}
