package disturb

import (
	"cmp"
	"crypto/sha256"
	"fmt"
	"maps"
	"net/netip"
	"regexp"
	"slices"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// State is the objects of a control plane, each as its fields with their values. What is different
// in every run is masked.
type State map[string]map[string]string

// newState returns the state that consists of objects.
func newState(objects map[schema.GroupResource][]*unstructured.Unstructured) State {
	state, owners := State{}, uids(objects)
	for resource, list := range objects {
		same := map[string][]map[string]string{} // several if their names are generated
		for _, o := range list {
			if ofServer(resource, o) {
				continue
			}
			f := flattening{fields: map[string]string{}, uids: owners,
				secret: resource.Resource == "secrets" && resource.Group == ""}
			f.add("", o.Object)
			k := key(resource, o)
			same[k] = append(same[k], f.fields)
		}
		for k, all := range same {
			slices.SortFunc(all, func(a, b map[string]string) int {
				return strings.Compare(fmt.Sprint(a), fmt.Sprint(b)) // Sprint sorts the keys
			})
			for i, fields := range all {
				name := k
				if i > 0 {
					name = fmt.Sprintf("%s (number %d)", k, i+1)
				}
				state[name] = fields
			}
		}
	}
	return state
}

// ofServer reports whether an object is a ClusterTrustBundle with the certificates of the server. A
// control loop publishes it some time after the start, and its name depends on the certificates.
func ofServer(resource schema.GroupResource, o *unstructured.Unstructured) bool {
	signer, _, _ := unstructured.NestedString(o.Object, "spec", "signerName")
	return resource == schema.GroupResource{
		Group: "certificates.k8s.io", Resource: "clustertrustbundles",
	} && signer == "kubernetes.io/kube-apiserver-serving"
}

// flattening makes fields of an object.
type flattening struct {
	fields map[string]string
	uids   map[string]string
	secret bool
}

// different are the fields that no two runs have in common, or that count changes.
var different = map[string]bool{
	".metadata.uid": true, ".metadata.resourceVersion": true, ".metadata.creationTimestamp": true,
	".metadata.managedFields": true, ".metadata.generation": true, ".metadata.name": true,
	".apiVersion": true, ".kind": true,
	// The time is left out when several changes are seen at once.
	".metadata.annotations.endpoints.kubernetes.io/last-change-trigger-time": true,
}

var uid = regexp.MustCompile(`^[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}$`)

func (f *flattening) add(path string, value any) {
	last := path[strings.LastIndex(path, ".")+1:]
	switch {
	case different[path], last == "observedGeneration", last == "nodePort", last == "resourceVersion":
		return
	}
	switch v := value.(type) {
	case map[string]any:
		if len(v) == 0 && path != "" {
			f.fields[path] = "{}"
		}
		for name, field := range v {
			if name != touched {
				f.add(path+"."+name, field)
			}
		}
	case []any:
		if len(v) == 0 {
			f.fields[path] = "[]"
		}
		for i, element := range sorted(v) {
			f.add(path+"["+index(i, element)+"]", element)
		}
	case string:
		f.fields[path] = f.mask(path, v)
	default:
		f.fields[path] = fmt.Sprint(v)
	}
}

// sorted returns the addresses in a list in order of the pods that they are of, because the order
// in which pods become ready is chance. Other lists are as they are.
func sorted(list []any) []any {
	target := func(element any) string {
		fields, _ := element.(map[string]any)
		name, _, _ := unstructured.NestedString(fields, "targetRef", "name")
		return name
	}
	if !slices.ContainsFunc(list, func(element any) bool { return target(element) != "" }) {
		return list
	}
	list = slices.Clone(list)
	slices.SortStableFunc(list, func(a, b any) int { return strings.Compare(target(a), target(b)) })
	return list
}

// index returns how an element of a list is called. Conditions are known by type, and most other
// elements by name.
func index(i int, element any) string {
	if fields, ok := element.(map[string]any); ok {
		for _, key := range []string{"type", "name"} {
			if name, ok := fields[key].(string); ok {
				return canonical(name)
			}
		}
	}
	return fmt.Sprint(i)
}

func (f *flattening) mask(path, v string) string {
	if f.secret && (strings.HasPrefix(path, ".data.") || strings.Contains(path, "annotations")) {
		return fmt.Sprintf("secret, SHA-256 %x…", sha256.Sum256([]byte(v)))[:22]
	}
	if k, ok := f.uids[v]; ok {
		return uidOf + k
	}
	if uid.MatchString(v) {
		return "UID of no object"
	}
	if _, err := time.Parse(time.RFC3339Nano, v); err == nil {
		return "time"
	}
	if _, err := netip.ParseAddr(v); err == nil {
		return "IP address"
	}
	return canonical(v)
}

// masked are the objects, and the fields of objects, that differ between two undisturbed runs. A
// whole object has the field "".
type masked map[[2]string]bool

// differences returns what differs between two states: first objects without an owner, then others,
// and last those that only show what others ask for. What lacks, or is too much, because something
// else does or is, is told with that.
func differences(before, after State, mask masked) []Difference {
	found := map[string]Difference{}
	for k, b := range before {
		if a, ok := after[k]; ok && !mask[[2]string{k, ""}] {
			if fields := changes(k, b, a, mask); fields != nil {
				found[k] = Difference{Object: objectOf(k), Fields: fields}
			}
		}
	}
	for k, with := range before.without(after, mask) {
		found[k] = Difference{Object: objectOf(k), In: InUndisturbed, Consequences: with}
	}
	for k, with := range after.without(before, mask) {
		found[k] = Difference{Object: objectOf(k), In: InDisturbed, Consequences: with}
	}
	rank := func(k string) int {
		switch {
		case isDerived(resourceOf(k)):
			return 2
		case len(owners(before[k])) > 0 || len(owners(after[k])) > 0:
			return 1
		}
		return 0
	}
	var all []Difference
	for _, k := range slices.SortedFunc(maps.Keys(found), func(a, b string) int {
		return cmp.Or(rank(a)-rank(b), strings.Compare(a, b))
	}) {
		all = append(all, found[k])
	}
	return all
}

// isDerived reports whether objects of a resource only follow from what others ask for.
func isDerived(r schema.GroupResource) bool {
	switch r.String() {
	case "replicasets.apps", "controllerrevisions.apps", "pods", "endpoints",
		"endpointslices.discovery.k8s.io", "events", "events.events.k8s.io":
		return true
	}
	return false
}

// without returns which objects another state does not have, and which others lack because each of
// them does. It leaves out the latter.
func (s State) without(other State, mask masked) map[string][]Object {
	missing := map[string]bool{}
	for k := range s {
		missing[k] = other[k] == nil && !mask[[2]string{k, ""}]
	}
	follows := map[string]bool{}
	consequences := map[string][]string{}
	for k := range s {
		if !missing[k] {
			continue
		}
		for _, cause := range s.causes(k) {
			if missing[cause] {
				follows[k] = true
				consequences[cause] = append(consequences[cause], k)
			}
		}
	}
	seen := map[string]bool{}
	var of func(cause string) []string
	of = func(cause string) (all []string) {
		for _, k := range consequences[cause] {
			if !seen[k] {
				seen[k] = true
				all = append(append(all, k), of(k)...)
			}
		}
		return all
	}
	all := map[string][]Object{}
	for _, k := range slices.Sorted(maps.Keys(s)) {
		if missing[k] && !follows[k] {
			all[k] = nil
			for _, k2 := range slices.Sorted(slices.Values(of(k))) {
				all[k] = append(all[k], objectOf(k2))
			}
		}
	}
	for k := range follows {
		if !seen[k] {
			all[k] = nil // objects that own each other
		}
	}
	return all
}

// causes returns the keys of the objects without which an object does not exist: its owners, the
// service of endpoints, the claim of a volume, and the stateful set of a claim.
func (s State) causes(k string) []string {
	all := owners(s[k])
	o := objectOf(k)
	switch o.Resource {
	case "endpoints":
		all = append(all, Object{"services", o.Namespace, o.Name}.String())
	case "persistentvolumes":
		if claim, ok := strings.CutPrefix(s[k][".spec.claimRef.uid"], uidOf); ok {
			all = append(all, claim)
		}
	case "persistentvolumeclaims":
		// Its name is that of the template, that of the set, and a number.
		for rest, ok := ordinal.ReplaceAllString(o.Name, ""), true; ok && rest != o.Name; {
			if _, rest, ok = strings.Cut(rest, "-"); ok {
				set := Object{"statefulsets.apps", o.Namespace, rest}.String()
				if s[set] != nil {
					all = append(all, set)
				}
			}
		}
	}
	return all
}

// ordinal is the end of the name of what belongs to a pod of a stateful set.
var ordinal = regexp.MustCompile(`-[0-9]+$`)

// owners returns the keys of the objects that own another one.
func owners(fields map[string]string) []string {
	var all []string
	for field, value := range fields {
		if strings.HasPrefix(field, ".metadata.ownerReferences[") && strings.HasSuffix(field, "].uid") {
			if owner, ok := strings.CutPrefix(value, uidOf); ok {
				all = append(all, owner)
			}
		}
	}
	return all
}

// uidOf begins the value of a field that has the UID of an object.
const uidOf = "UID of "

// changes returns the fields of an object that differ.
func changes(k string, before, after map[string]string, mask masked) []Field {
	var all []Field
	for _, path := range slices.Sorted(maps.Keys(union(before, after))) {
		b, inBefore := before[path]
		a, inAfter := after[path]
		if a == b && inBefore == inAfter || mask[[2]string{k, path}] ||
			strings.HasPrefix(k, "configmaps ") && sameLines(a, b) {
			continue
		}
		f := Field{Path: path}
		if inBefore {
			f.Undisturbed = &b
		}
		if inAfter {
			f.Disturbed = &a
		}
		all = append(all, f)
	}
	return all
}

// sameLines reports whether texts have the same lines, in whatever order: a program that writes a
// map of Go has another one each time.
func sameLines(a, b string) bool {
	if len(a) != len(b) || !strings.Contains(a, "\n") {
		return false
	}
	return slices.Equal(slices.Sorted(strings.SplitSeq(a, "\n")), slices.Sorted(strings.SplitSeq(b, "\n")))
}

// maskOf returns what differs between two states.
func maskOf(one, other State) masked {
	mask := masked{}
	for k := range union(one, other) {
		a, b := one[k], other[k]
		if a == nil || b == nil {
			mask[[2]string{k, ""}] = true
			continue
		}
		for field := range union(a, b) {
			if v, ok := a[field]; !ok || v != b[field] {
				mask[[2]string{k, field}] = true
			} else if _, ok := b[field]; !ok {
				mask[[2]string{k, field}] = true
			}
		}
	}
	return mask
}

func union[V any](a, b map[string]V) map[string]V {
	all := maps.Clone(a)
	if all == nil {
		return b
	}
	maps.Copy(all, b)
	return all
}
