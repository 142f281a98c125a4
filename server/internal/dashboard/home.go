package dashboard

import (
	"cmp"
	"context"
	"fmt"
	"net/http"
	"slices"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/kinproc/kinproc/chain/history"
)

const (
	// changesSince is how far back changes are shown.
	changesSince = time.Minute
	// changesShown bounds them.
	changesShown = 200
	// namespacesFollowed bounds in how many namespaces changes are looked for.
	namespacesFollowed = 25
	// problemsShown bounds the problems.
	problemsShown = 200
	// problemsExplained bounds for how many pods the reason is read from the pod.
	problemsExplained = 20
	// warningsShown bounds the warnings.
	warningsShown = 20
)

// problem is something that is wrong.
type problem struct {
	State    state  `json:"state"`
	Group    string `json:"group"`
	Version  string `json:"version"`
	Resource string `json:"resource"`
	Kind     string `json:"kind"`
	Inside   string `json:"inside"`
	Name     string `json:"name"`
	Why      string `json:"why"`
}

// home is what is wrong now and what has changed lately.
type home struct {
	Problems []problem `json:"problems"`
	More     int       `json:"more"`    // problems that are not shown
	Healthy  []tally   `json:"healthy"` // how many objects of each kind were looked at
	Warnings table     `json:"warnings"`
	Changes  []version `json:"changes"` // newest first
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

// serveHome returns what is wrong and what has changed.
func (s *Server) serveHome(w http.ResponseWriter, r *http.Request) {
	h := home{Problems: []problem{}, Healthy: []tally{}, Changes: []version{}}
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
	tallies := make([]tally, len(watched))
	for i, k := range watched {
		ask(k.Kind, func() error {
			problems, states, err := s.problemsOf(ctx, k.kind, k.why)
			mu.Lock()
			defer mu.Unlock()
			tallies[i] = tally{k.Kind, k.Group, k.Version, k.Resource, states}
			h.Problems = append(h.Problems, problems...)
			return err
		})
	}
	for what, find := range map[string]func(context.Context) ([]problem, error){
		"Definitions": s.definitionProblems, "Webhooks": s.webhookProblems,
		"ResourceQuotas": s.quotaProblems,
	} {
		ask(what, func() error {
			problems, err := find(ctx)
			mu.Lock()
			defer mu.Unlock()
			h.Problems = append(h.Problems, problems...)
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
	order := []state{failing, pending, terminating}
	slices.SortFunc(h.Problems, func(a, b problem) int {
		return cmp.Or(cmp.Compare(slices.Index(order, a.State), slices.Index(order, b.State)),
			cmp.Compare(a.Kind, b.Kind), cmp.Compare(a.Inside, b.Inside), cmp.Compare(a.Name, b.Name))
	})
	h.More = max(0, len(h.Problems)-problemsShown)
	h.Problems = h.Problems[:min(len(h.Problems), problemsShown)]
	slices.Sort(h.Failed)
	sendJSON(w, h)
}

// problemsOf returns the objects of a kind that are not well, and counts all by their states.
func (s *Server) problemsOf(
	ctx context.Context, k kind, why string,
) (problems []problem, states map[state]int, err error) {
	t, states, err := s.statesOf(ctx, k)
	if err != nil {
		return nil, nil, err
	}
	for _, r := range t.Rows {
		if r.State == ready || r.State == done || r.State == "" {
			continue
		}
		p := k.problem(r.State, r.Namespace, r.Name, t.cells(r)(why))
		if r.State == terminating {
			p.Why = "is being deleted"
			for _, f := range r.metadata.Finalizers {
				p.Why += ", waits for the finalizer " + f
			}
		} else if len(problems) < problemsExplained {
			p.Why = s.explain(ctx, k, p)
		}
		problems = append(problems, p)
	}
	return problems, states, nil
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

func (k kind) problem(s state, inside, name, why string) problem {
	return problem{s, k.Group, k.Version, k.Resource, k.Kind, inside, name, why}
}

// explain says why an object is not well: what its row says, and the first condition or container
// that says more.
func (s *Server) explain(ctx context.Context, k kind, p problem) string {
	object, err := s.dynamic.Resource(k.resource()).Namespace(p.Inside).
		Get(ctx, p.Name, metav1.GetOptions{})
	if err != nil {
		return p.Why
	}
	for _, list := range []string{"initContainerStatuses", "containerStatuses"} {
		containers, _, _ := unstructured.NestedSlice(object.Object, "status", list)
		for _, each := range containers {
			container, _ := each.(map[string]any)
			for _, phase := range []string{"waiting", "terminated"} {
				message, _, _ := unstructured.NestedString(container, "state", phase, "message")
				if message != "" {
					return join(p.Why, message)
				}
			}
		}
	}
	for _, c := range conditionsOf(*object) {
		bad := c.Status == "False" || c.Type == "ReplicaFailure" || c.Type == "Failed"
		if bad && c.Message != "" {
			return join(p.Why, c.Message)
		}
	}
	return p.Why
}

func join(what, message string) string {
	if what == "" {
		return message
	}
	return what + ": " + message
}

func (s *Server) definitionProblems(ctx context.Context) ([]problem, error) {
	crds, err := s.all(ctx, definitions)
	var problems []problem
	k := kind{
		Group: definitions.Group, Version: definitions.Version, Resource: definitions.Resource,
		Kind: "CustomResourceDefinition",
	}
	for _, crd := range crds {
		for _, c := range conditionsOf(crd) {
			if !c.good() {
				problems = append(problems, k.problem(failing, "", crd.GetName(),
					join(c.Type+" is "+c.Status, c.Message)))
			}
		}
	}
	return problems, err
}

// quotaProblems returns the quotas of which nothing is left.
func (s *Server) quotaProblems(ctx context.Context) ([]problem, error) {
	k := kind{Version: "v1", Resource: "resourcequotas", Kind: "ResourceQuota"}
	quotas, err := s.all(ctx, k.resource())
	var problems []problem
	for _, q := range quotas {
		hard, _, _ := unstructured.NestedStringMap(q.Object, "status", "hard")
		used, _, _ := unstructured.NestedStringMap(q.Object, "status", "used")
		var full []string
		for name, limit := range hard {
			most, err1 := resource.ParseQuantity(limit)
			now, err2 := resource.ParseQuantity(used[name])
			if err1 == nil && err2 == nil && !most.IsZero() && now.Cmp(most) >= 0 {
				full = append(full, fmt.Sprintf("%s is used up: %s of %s", name, used[name], limit))
			}
		}
		slices.Sort(full)
		for _, why := range full {
			problems = append(problems, k.problem(pending, q.GetNamespace(), q.GetName(), why))
		}
	}
	return problems, err
}

// webhookProblems returns the webhooks whose service does not exist.
func (s *Server) webhookProblems(ctx context.Context) ([]problem, error) {
	const group = "admissionregistration.k8s.io"
	var problems []problem
	for _, k := range []kind{
		{Resource: "mutatingwebhookconfigurations", Kind: "MutatingWebhookConfiguration"},
		{Resource: "validatingwebhookconfigurations", Kind: "ValidatingWebhookConfiguration"},
	} {
		k.Group, k.Version = group, "v1"
		configurations, err := s.all(ctx, k.resource())
		if err != nil {
			return problems, err
		}
		for _, c := range configurations {
			hooks, _, _ := unstructured.NestedSlice(c.Object, "webhooks")
			for _, each := range hooks {
				hook, _ := each.(map[string]any)
				if why := s.hookProblem(ctx, hook); why != "" {
					problems = append(problems, k.problem(failing, "", c.GetName(), why))
				}
			}
		}
	}
	return problems, nil
}

// hookProblem says why a webhook cannot be called, or nothing.
func (s *Server) hookProblem(ctx context.Context, hook map[string]any) string {
	name, _, _ := unstructured.NestedString(hook, "clientConfig", "service", "name")
	namespace, _, _ := unstructured.NestedString(hook, "clientConfig", "service", "namespace")
	if name == "" {
		return ""
	}
	services := schema.GroupVersionResource{Version: "v1", Resource: "services"}
	_, err := s.dynamic.Resource(services).Namespace(namespace).Get(ctx, name, metav1.GetOptions{})
	if err == nil {
		return ""
	}
	called, _ := hook["name"].(string)
	effect := "requests that it should see are refused"
	if policy, _ := hook["failurePolicy"].(string); policy == "Ignore" {
		effect = "it is left out"
	}
	return fmt.Sprintf("%s cannot be called, so %s: %s", called, effect, err)
}

// clusterScoped are the resources without a namespace whose changes are shown.
var clusterScoped = []schema.GroupVersionResource{
	{Version: "v1", Resource: "namespaces"},
	nodes,
	{Version: "v1", Resource: "persistentvolumes"},
	definitions,
	apiServices,
}

// changes returns what has changed lately, newest first, without events and leases.
func (s *Server) changes(ctx context.Context) ([]version, error) {
	namespaces, err := s.all(ctx, clusterScoped[0])
	if err != nil {
		return nil, err
	}
	list := []version{}
	since := time.Now().Add(-changesSince)
	add := func(path string, contents bool) error {
		h, err := history.Get(ctx, s.config, path, history.Options{
			Contents: contents, Limit: changesShown,
		})
		if err != nil {
			return err
		}
		for _, v := range h.Versions {
			if v.Time == nil || v.Time.Before(since) || v.Resource == "leases.coordination.k8s.io" ||
				v.Resource == "events" || v.Resource == "events.events.k8s.io" {
				continue
			}
			list = append(list, describeVersion(v))
		}
		return nil
	}
	for _, n := range namespaces[:min(len(namespaces), namespacesFollowed)] {
		if n.GetName() == "kube-node-lease" {
			continue // nothing but leases
		}
		if err := add(history.PathOf(clusterScoped[0], "", n.GetName()), true); err != nil {
			return list, err
		}
	}
	for _, resource := range clusterScoped {
		if err := add(history.PathOf(resource, "", ""), false); err != nil {
			return list, err
		}
	}
	slices.SortFunc(list, func(a, b version) int { return cmp.Compare(b.Revision, a.Revision) })
	return list[:min(len(list), changesShown)], nil
}
