package dashboard

import (
	"cmp"
	"context"
	"fmt"
	"net/http"
	"net/url"
	"path"
	"slices"
	"strconv"
	"strings"
	"sync"

	"github.com/prometheus/common/expfmt"
	"github.com/prometheus/common/model"
	"golang.org/x/sync/errgroup"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// countsAtOnce bounds how many kinds are counted at a time.
const countsAtOnce = 8

var (
	apiServices = schema.GroupVersionResource{
		Group: "apiregistration.k8s.io", Version: "v1", Resource: "apiservices",
	}
	definitions = schema.GroupVersionResource{
		Group: "apiextensions.k8s.io", Version: "v1", Resource: "customresourcedefinitions",
	}
	nodes = schema.GroupVersionResource{Version: "v1", Resource: "nodes"}
)

// condition is a condition of an object.
type condition struct {
	Object  string `json:"object"`
	Type    string `json:"type"`
	Status  string `json:"status"`
	Reason  string `json:"reason"`
	Message string `json:"message"`
	Good    bool   `json:"good"`
}

// good reports whether the condition is as it should be.
func (c condition) good() bool {
	return (c.Status == "True") != (c.Type == "NonStructuralSchema" || c.Type == "Terminating")
}

// served is a group version, and the link of the chain that serves it.
type served struct {
	Version string `json:"version"`
	Link    string `json:"link"`
	By      string `json:"by,omitempty"` // the service that it is proxied to
	Kinds   int    `json:"kinds"`
}

// gauge is a number that the control plane reports about something.
type gauge struct {
	Name  string `json:"name"`
	Value int    `json:"value"`
}

// node is a node of the cluster.
type node struct {
	Name      string `json:"name"`
	State     string `json:"state"`
	Simulated bool   `json:"simulated"`
	Health    state  `json:"health"`
	Capacity  string `json:"capacity"`
}

// hook is an admission webhook.
type hook struct {
	Kind          string `json:"kind"` // "mutating" or "validating"
	Configuration string `json:"configuration"`
	Name          string `json:"name"`
	Asks          string `json:"asks"`   // the service, or the host of the URL
	Policy        string `json:"policy"` // what happens if it cannot be called
}

// inventory is what hangs on the chain.
type inventory struct {
	Versions    []served    `json:"versions"`
	APIServices []condition `json:"apiServices"`
	Definitions []condition `json:"definitions"`
	Loops       []gauge     `json:"loops"`   // 1 if it runs, 0 if it has nothing to do yet
	Watches     []gauge     `json:"watches"` // open ones, by resource
	Nodes       []node      `json:"nodes"`
	Webhooks    []hook      `json:"webhooks"`
	// Problems are sentences about what could not be found out.
	Problems []string `json:"problems"`
}

// serveInventory returns what hangs on the chain.
func (s *Server) serveInventory(w http.ResponseWriter, r *http.Request) {
	var i inventory
	var services, crds []unstructured.Unstructured
	var kinds map[string]int
	var mu sync.Mutex
	var asking sync.WaitGroup
	ask := func(what string, f func() error) {
		asking.Go(func() {
			if err := f(); err != nil {
				mu.Lock()
				defer mu.Unlock()
				i.Problems = append(i.Problems, fmt.Sprintf("%s: %s", what, err))
			}
		})
	}
	ctx := r.Context()
	ask("APIServices", func() (err error) { services, err = s.all(ctx, apiServices); return err })
	ask("Definitions", func() (err error) { crds, err = s.all(ctx, definitions); return err })
	ask("Kinds", func() (err error) { kinds, err = s.kindsOf(ctx); return err })
	ask("Metrics", func() (err error) { i.Loops, i.Watches, err = s.gauges(ctx); return err })
	ask("Webhooks", func() (err error) { i.Webhooks, err = s.hooks(ctx); return err })
	ask("Nodes", func() error {
		list, err := s.all(ctx, nodes)
		for _, n := range list {
			i.Nodes = append(i.Nodes, describeNode(n.Object))
		}
		return err
	})
	asking.Wait()
	slices.Sort(i.Problems)
	for _, service := range services {
		i.APIServices = append(i.APIServices, conditionsOf(service)...)
	}
	for _, crd := range crds {
		i.Definitions = append(i.Definitions, conditionsOf(crd)...)
	}
	i.Versions = versions(kinds, services, crds)
	sendJSON(w, i)
}

// all returns the objects of a resource.
func (s *Server) all(
	ctx context.Context, resource schema.GroupVersionResource,
) ([]unstructured.Unstructured, error) {
	list, err := s.dynamic.Resource(resource).List(ctx, metav1.ListOptions{})
	if err != nil {
		return nil, err
	}
	return list.Items, nil
}

func conditionsOf(object unstructured.Unstructured) []condition {
	list, _, _ := unstructured.NestedSlice(object.Object, "status", "conditions")
	var conditions []condition
	for _, each := range list {
		c, _ := each.(map[string]any)
		text := func(field string) string { t, _ := c[field].(string); return t }
		one := condition{
			Object: object.GetName(), Type: text("type"), Status: text("status"), Reason: text("reason"),
			Message: text("message"),
		}
		one.Good = one.good()
		conditions = append(conditions, one)
	}
	if len(conditions) == 0 {
		conditions = append(conditions, condition{Object: object.GetName(), Status: "Unknown"})
	}
	return conditions
}

// hooks returns the admission webhooks, those that may change objects first.
func (s *Server) hooks(ctx context.Context) (list []hook, err error) {
	err = s.eachWebhook(ctx, func(k kind, c unstructured.Unstructured, fields map[string]any) {
		text := func(path ...string) string {
			t, _, _ := unstructured.NestedString(fields, path...)
			return t
		}
		h := hook{
			Kind: "validating", Configuration: c.GetName(), Name: text("name"),
			Policy: text("failurePolicy"),
		}
		if strings.HasPrefix(k.Resource, "mutating") {
			h.Kind = "mutating"
		}
		if at, err := url.Parse(text("clientConfig", "url")); err == nil && at.Host != "" {
			h.Asks = at.Host
		} else {
			h.Asks = path.Join(text("clientConfig", "service", "namespace"),
				text("clientConfig", "service", "name"))
		}
		list = append(list, h)
	})
	return list, err
}

func describeNode(object map[string]any) node {
	n := unstructured.Unstructured{Object: object}
	runtime, _, _ := unstructured.NestedString(object, "status", "nodeInfo",
		"containerRuntimeVersion")
	described := node{
		Name: n.GetName(), State: "Unknown", Health: pending,
		Simulated: strings.HasPrefix(runtime, "simulated:"),
	}
	for _, c := range conditionsOf(n) {
		switch {
		case c.Type == "Ready" && c.Status == "True":
			described.State, described.Health = "Ready", ready
		case c.Type == "Ready" && c.Status == "False":
			described.State, described.Health = "Not ready", failing
		}
	}
	if cordoned, _, _ := unstructured.NestedBool(object, "spec", "unschedulable"); cordoned {
		described.State += ", unschedulable"
		if described.Health == ready {
			described.Health = pending
		}
	}
	capacity, _, _ := unstructured.NestedStringMap(object, "status", "capacity")
	var words []string
	for _, resource := range []string{"cpu", "memory", "pods"} {
		if capacity[resource] != "" {
			words = append(words, capacity[resource]+" "+resource)
		}
	}
	described.Capacity = strings.Join(words, ", ")
	return described
}

// kindsOf returns the number of kinds in each group version.
func (s *Server) kindsOf(ctx context.Context) (map[string]int, error) {
	_, lists, err := s.discovery.ServerGroupsAndResourcesWithContext(ctx)
	if len(lists) == 0 && err != nil {
		return nil, err // otherwise only some group is unavailable, as its APIService shows
	}
	kinds := map[string]int{}
	for _, list := range lists {
		for _, r := range list.APIResources {
			if !strings.Contains(r.Name, "/") {
				kinds[list.GroupVersion]++
			}
		}
	}
	return kinds, nil
}

// versions returns the group versions with the links that serve them.
func versions(kinds map[string]int, services, crds []unstructured.Unstructured) []served {
	custom := map[string]bool{}
	for _, crd := range crds {
		group, _, _ := unstructured.NestedString(crd.Object, "spec", "group")
		custom[group] = true
	}
	var list []served
	for _, service := range services {
		group, _, _ := unstructured.NestedString(service.Object, "spec", "group")
		version, _, _ := unstructured.NestedString(service.Object, "spec", "version")
		v := served{Version: schema.GroupVersion{Group: group, Version: version}.String(), Link: "core"}
		v.Kinds = kinds[v.Version]
		name, proxied, _ := unstructured.NestedString(service.Object, "spec", "service", "name")
		namespace, _, _ := unstructured.NestedString(service.Object, "spec", "service", "namespace")
		switch {
		case proxied:
			v.Link, v.By = "aggregator", namespace+"/"+name
		case custom[group], group == definitions.Group:
			v.Link = "extensions"
		}
		list = append(list, v)
	}
	// The aggregator serves its own group itself, without an APIService.
	own := apiServices.GroupVersion().String()
	list = append(list, served{Version: own, Link: "aggregator", Kinds: kinds[own]})
	slices.SortFunc(list, func(a, b served) int {
		return cmp.Or(cmp.Compare(slices.Index(places, a.Link), slices.Index(places, b.Link)),
			// v1, which has no group, comes first
			cmp.Compare(strings.Count(a.Version, "/"), strings.Count(b.Version, "/")),
			cmp.Compare(a.Version, b.Version))
	})
	return list
}

// gauges returns which control loops run and how many watches are open.
func (s *Server) gauges(ctx context.Context) (loops, watches []gauge, err error) {
	response, err := s.ask(ctx, http.MethodGet, "/metrics")
	if err != nil {
		return nil, nil, err
	}
	defer response.Body.Close()
	if response.StatusCode != http.StatusOK {
		return nil, nil, fmt.Errorf("the control plane answered %s", response.Status)
	}
	parser := expfmt.NewTextParser(model.UTF8Validation)
	families, err := parser.TextToMetricFamilies(response.Body)
	if err != nil {
		return nil, nil, fmt.Errorf("read the metrics: %w", err)
	}
	for _, m := range families["running_managed_controllers"].GetMetric() {
		for _, label := range m.GetLabel() {
			if label.GetName() == "name" {
				loops = append(loops, gauge{label.GetValue(), int(m.GetGauge().GetValue())})
			}
		}
	}
	for _, m := range families["apiserver_longrunning_requests"].GetMetric() {
		labels := map[string]string{}
		for _, label := range m.GetLabel() {
			labels[label.GetName()] = label.GetValue()
		}
		if n := int(m.GetGauge().GetValue()); labels["verb"] == "WATCH" && n > 0 {
			watches = append(watches, gauge{
				schema.GroupResource{Group: labels["group"], Resource: labels["resource"]}.String(), n,
			})
		}
	}
	for _, list := range [][]gauge{loops, watches} {
		slices.SortFunc(list, func(a, b gauge) int { return cmp.Compare(a.Name, b.Name) })
	}
	return loops, watches, nil
}

// ask sends a request to the control plane.
func (s *Server) ask(ctx context.Context, method, path string) (*http.Response, error) {
	r, err := http.NewRequestWithContext(ctx, method, s.host.JoinPath(path).String(), nil)
	if err != nil {
		return nil, err
	}
	return s.client.Do(r)
}

// serveCounts returns the number of objects of each kind that has any.
func (s *Server) serveCounts(w http.ResponseWriter, r *http.Request) {
	kinds, err := s.kinds(r.Context())
	if err != nil {
		refuse(w, http.StatusBadGateway, "The kinds cannot be listed: "+err.Error())
		return
	}
	type count struct {
		kind
		Count  string        `json:"count"`
		States map[state]int `json:"states,omitempty"`
	}
	counts := make([]count, len(kinds))
	var counting errgroup.Group
	counting.SetLimit(countsAtOnce)
	for i, k := range kinds {
		k.Verbs, k.Short = nil, nil // GET /kinds has them
		counting.Go(func() error {
			if isWatched(k) {
				if _, states, err := s.statesOf(r.Context(), k); err == nil {
					n := 0
					for _, c := range states {
						n += c
					}
					counts[i] = count{kind: k, Count: strconv.Itoa(n), States: states}
					return nil
				}
			}
			list, err := s.metadata.Resource(k.resource()).List(r.Context(), metav1.ListOptions{Limit: 1})
			if err != nil {
				counts[i] = count{kind: k, Count: "unknown"}
				return nil // one kind that cannot be counted does not concern the others
			}
			n := int64(len(list.Items))
			if list.RemainingItemCount != nil {
				n += *list.RemainingItemCount
			}
			counts[i] = count{kind: k, Count: strconv.FormatInt(n, 10)}
			return nil
		})
	}
	_ = counting.Wait() // no error is returned
	sendJSON(w, slices.DeleteFunc(counts, func(c count) bool { return c.Count == "0" }))
}
