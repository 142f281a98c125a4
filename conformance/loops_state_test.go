package conformance_test

import (
	"cmp"
	"encoding/json"
	"fmt"
	"regexp"
	"slices"
	"strings"

	certificatesv1 "k8s.io/api/certificates/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/discovery"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/metadata"
)

// state returns the fields of all objects of the scenario and the events, one fact each. What
// differs from run to run is replaced: times, uids, addresses, nodes, hashes of templates and
// random parts of names. Objects whose names are the same then are counted.
func (p *played) state() facts {
	p.Helper()
	objects := p.objects()
	rename := renaming(objects)
	all, counts := facts{}, map[string]int{}
	for _, o := range objects {
		data, err := json.Marshal(o.Object)
		p.ok(err)
		var content map[string]any
		p.ok(json.Unmarshal([]byte(rename(string(data))), &content))
		if o.GetKind() == "Event" {
			all[eventFact(content)] = true
			continue
		}
		metadata := content["metadata"].(map[string]any)
		name := fmt.Sprintf("%s %v", o.GetKind(), metadata["name"])
		counts[name]++
		for _, managed := range list(metadata["managedFields"]) {
			m := managed.(map[string]any)
			all[fmt.Sprintf("%s managed by %v %v %v", name, m["manager"], m["operation"],
				cmp.Or(m["subresource"], any("")))] = true
		}
		delete(metadata, "managedFields")
		// How many pods become ready at once decides how often these are written.
		switch o.GetKind() {
		case "ReplicaSet":
			delete(metadata, "generation")
			delete(content["status"].(map[string]any), "observedGeneration")
		case "Endpoints", "EndpointSlice":
			delete(metadata, "generation")
			if annotations, ok := metadata["annotations"].(map[string]any); ok {
				delete(annotations, corev1.EndpointsLastChangeTriggerTime)
			}
		}
		all.addFields(name+" ", content)
	}
	for name, n := range counts {
		all[fmt.Sprintf("%s: %d", name, n)] = true
	}
	return all
}

func list(v any) []any {
	l, _ := v.([]any)
	return l
}

// objects returns all objects in the namespaces of the scenario, and what it needs of the cluster.
func (p *played) objects() []unstructured.Unstructured {
	p.Helper()
	client := dynamic.NewForConfigOrDie(p.server.RESTConfig())
	lists, err := discovery.ServerPreferredNamespacedResources(p.client.Discovery())
	p.ok(err)
	var all []unstructured.Unstructured
	for _, group := range lists {
		gv, err := schema.ParseGroupVersion(group.GroupVersion)
		p.ok(err)
		for _, r := range group.APIResources {
			if !slices.Contains(r.Verbs, "list") || gv.Group == "events.k8s.io" {
				continue
			}
			for _, namespace := range []string{loopsNamespace, "dying"} {
				found, err := client.Resource(gv.WithResource(r.Name)).Namespace(namespace).
					List(p.Context(), metav1.ListOptions{})
				p.ok(err)
				all = append(all, found.Items...)
			}
		}
	}
	for _, o := range []struct{ group, version, resource, name string }{
		{"", "v1", "namespaces", loopsNamespace},
		{"", "v1", "namespaces", "dying"},
		{"", "v1", "persistentvolumes", "disk"},
		{"", "v1", "nodes", "simulated-0"},
		{"certificates.k8s.io", "v1", "certificatesigningrequests", "jane"},
		{"rbac.authorization.k8s.io", "v1", "clusterroles", "sum"},
	} {
		resource := schema.GroupVersionResource{Group: o.group, Version: o.version, Resource: o.resource}
		found, err := client.Resource(resource).Get(p.Context(), o.name, metav1.GetOptions{})
		p.ok(err)
		all = append(all, *found)
	}
	bundles, err := client.Resource(certificatesv1.SchemeGroupVersion.WithResource(
		"clustertrustbundles")).List(p.Context(), metav1.ListOptions{})
	p.ok(err)
	return append(all, bundles.Items...)
}

// versions returns the versions of all objects but leases, which are renewed, and events, of which
// the autoscaler writes one whenever there are no metrics.
func (p *played) versions() map[string]string {
	p.Helper()
	client := metadata.NewForConfigOrDie(p.server.RESTConfig())
	lists, err := discovery.ServerPreferredResources(p.client.Discovery())
	p.ok(err)
	versions := map[string]string{}
	for _, group := range lists {
		gv, err := schema.ParseGroupVersion(group.GroupVersion)
		p.ok(err)
		for _, r := range group.APIResources {
			if !slices.Contains(r.Verbs, "list") || r.Name == "leases" || r.Name == "events" {
				continue
			}
			found, err := client.Resource(gv.WithResource(r.Name)).List(p.Context(),
				metav1.ListOptions{})
			p.ok(err)
			for _, o := range found.Items {
				versions[r.Name+" "+o.Namespace+"/"+o.Name] = o.ResourceVersion
			}
		}
	}
	return versions
}

var varying = []struct {
	pattern *regexp.Regexp
	instead string
}{
	{regexp.MustCompile(`[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}`), "UID"},
	{regexp.MustCompile(`\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d+)?Z`), "TIME"},
	{regexp.MustCompile(`\b(10|198)\.\d+\.\d+\.\d+\b`), "ADDRESS"},
	{regexp.MustCompile(`\b[0-9a-f]{64}\b`), "SHA256"},
	{regexp.MustCompile(`\b[0-9a-f]{24}\b`), "HASH"}, // in the names of ClusterTrustBundles
	{regexp.MustCompile(`"resourceVersion":"\d+"`), `"resourceVersion":"VERSION"`},
	{regexp.MustCompile(`\bsimulated-[01]\b`), "NODE"},
	{regexp.MustCompile(`(Scaled (?:up|down) replica set \S+ from) \d+ to \d+`), "$1 N to M"},
	// A recorder of events writes this before the message of the eleventh similar event.
	{regexp.MustCompile(`\(combined from similar events\): `), ""},
	// The letters and digits of generated names do not make words.
	{regexp.MustCompile(`-[bcdfghjklmnpqrstvwxz2456789]{5}\b`), "-*"},
}

// renaming returns a function that replaces what varies in the JSON of an object. Hashes of
// templates become the number of their revision.
func renaming(objects []unstructured.Unstructured) func(string) string {
	var pairs []string
	for _, o := range objects {
		switch o.GetKind() {
		case "ReplicaSet":
			pairs = append(pairs, o.GetLabels()["pod-template-hash"],
				"HASH"+o.GetAnnotations()["deployment.kubernetes.io/revision"])
		case "ControllerRevision":
			_, hash, _ := strings.Cut(o.GetName(), "-")
			revision, _, _ := unstructured.NestedInt64(o.Object, "revision")
			pairs = append(pairs, hash, fmt.Sprintf("HASH%d", revision))
		}
	}
	hashes := strings.NewReplacer(pairs...)
	return func(s string) string {
		s = hashes.Replace(s)
		for _, v := range varying {
			s = v.pattern.ReplaceAllString(s, v.instead)
		}
		return s
	}
}

// isEvent reports whether a fact is about an event.
func isEvent(fact string) bool { return strings.HasPrefix(fact, "Event ") }

func eventFact(e map[string]any) string {
	about, source := e["involvedObject"].(map[string]any), e["source"].(map[string]any)
	return fmt.Sprintf("Event %v of %v %v by %v: %v: %v", e["type"], about["kind"], about["name"],
		cmp.Or(source["component"], e["reportingComponent"]), e["reason"], e["message"])
}

// addFields adds a fact for each field below a value. An element of a list is called by its key, or
// by its position.
func (f facts) addFields(at string, v any) {
	switch v := v.(type) {
	case map[string]any:
		for key, value := range v {
			f.addFields(at+"."+key, value)
		}
	case []any:
		for i, element := range v {
			key := fmt.Sprint(i)
			if m, ok := element.(map[string]any); ok {
				for _, field := range []string{"type", "name", "ip", "port"} {
					if value, ok := m[field]; ok {
						key = fmt.Sprint(value)
						break
					}
				}
			}
			f.addFields(at+"["+key+"]", element)
		}
	case string:
		if len(v) > 200 {
			v = "LONG" // a certificate or a token
		}
		f[fmt.Sprintf("%s=%q", at, v)] = true
	default:
		f[fmt.Sprintf("%s=%v", at, v)] = true
	}
}
