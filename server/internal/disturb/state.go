package disturb

import (
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
}

var uid = regexp.MustCompile(`^[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}$`)

func (f *flattening) add(path string, value any) {
	last := path[strings.LastIndex(path, ".")+1:]
	if different[path] || last == "observedGeneration" || last == "nodePort" {
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
		for i, element := range v {
			f.add(path+"["+index(i, element)+"]", element)
		}
	case string:
		f.fields[path] = f.mask(path, v)
	default:
		f.fields[path] = fmt.Sprint(v)
	}
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
		return "UID of " + k
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

// differences returns what differs between two states, with a line for each field.
func differences(before, after State, mask masked) []string {
	var all []string
	for _, k := range slices.Sorted(maps.Keys(union(before, after))) {
		b, inBefore := before[k]
		a, inAfter := after[k]
		switch {
		case mask[[2]string{k, ""}]:
		case !inAfter:
			all = append(all, "- "+k)
		case !inBefore:
			all = append(all, "+ "+k)
		default:
			all = append(all, changes(k, b, a, mask)...)
		}
	}
	return all
}

func changes(k string, before, after map[string]string, mask masked) []string {
	var all []string
	for _, field := range slices.Sorted(maps.Keys(union(before, after))) {
		b, inBefore := before[field]
		a, inAfter := after[field]
		if a == b && inBefore == inAfter || mask[[2]string{k, field}] {
			continue
		}
		if inBefore {
			all = append(all, fmt.Sprintf("-   %s: %s", field, b))
		}
		if inAfter {
			all = append(all, fmt.Sprintf("+   %s: %s", field, a))
		}
	}
	if all != nil {
		all = append([]string{"  " + k}, all...)
	}
	return all
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
