package disturb

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/netip"
	"regexp"
	"strings"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/sets"
	genericapirequest "k8s.io/apiserver/pkg/endpoints/request"
	"k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/tools/leaderelection/resourcelock"
)

// An Op is what a request does, so that the same request is recognized in another run.
type Op struct {
	Verb        string
	Resource    schema.GroupVersionResource
	Subresource string
	Namespace   string
	Name        string // see canonical
	// Act is the act of the user in which the request is sent, from 1, or 0 before the first. Nth
	// counts the requests of an act that are equal otherwise, from 1. Neither is known of the
	// requests of others.
	Act, Nth int
}

// object returns the object that the request is about.
func (o Op) object() Op { return Op{Resource: o.Resource, Namespace: o.Namespace, Name: o.Name} }

// key returns the key of the object in a state.
func (o Op) key() string {
	return o.Resource.GroupResource().String() + " " + join("/", o.Namespace, o.Name)
}

// String returns the text of [Target.String].
func (o Op) String() string { return o.target().String() }

// slug returns what names of disturbances contain.
func (o Op) slug() string {
	namespace := o.Namespace
	if namespace == metav1.NamespaceDefault {
		namespace = ""
	}
	act, nth := "", ""
	switch {
	case o.Act > 1:
		act = fmt.Sprintf("in-act-%d", o.Act)
	case o.Act == 0 && o.Nth > 0:
		act = "at-start"
	}
	if o.Nth > 1 {
		nth = fmt.Sprint(o.Nth)
	}
	name := strings.Trim(strings.ReplaceAll(o.Name, "*", ""), "-")
	return join("-", o.Verb, o.Resource.Resource, o.Subresource, namespace, name, act, nth)
}

func join(separator string, parts ...string) string {
	var all []string
	for _, p := range parts {
		if p != "" {
			all = append(all, p)
		}
	}
	return strings.Join(all, separator)
}

// generated matches names that the server has completed with five random characters.
var generated = regexp.MustCompile(`-[bcdfghjklmnpqrstvwxz2456789]{5}$`)

// identified matches a UID in a name, such as that of a volume.
var identified = regexp.MustCompile(`[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}`)

// canonical returns a name with stars for UIDs and its random end, or a star for an address, which
// is random too.
func canonical(name string) string {
	if _, err := netip.ParseAddr(name); err == nil {
		return "*"
	}
	return generated.ReplaceAllString(identified.ReplaceAllString(name, "*"), "-*")
}

// writes reports whether the request changes an object. Leases and events do not count, because
// every controller writes them for other reasons than its work.
func (o Op) writes() bool {
	switch o.Verb {
	case "create", "update", "patch", "delete", "deletecollection":
	default:
		return false
	}
	return !beside(o.Resource.Group, o.Resource.Resource) && o.Subresource != "token"
}

// beside reports whether a resource is not part of the state that a controller is to bring about.
func beside(group, resource string) bool {
	switch group {
	case "authentication.k8s.io", "authorization.k8s.io", "coordination.k8s.io":
		return true
	}
	return resource == "events"
}

// call is a request of a client, with what its body says.
type call struct {
	Op
	name     string // of the object in the request, which Op.Name may not be
	resource bool   // false for discovery, health checks and the like
	dryRun   bool
	// precondition is true if the server is to refuse the request when the object has changed.
	precondition bool
	// lock is true if the request writes what says which instance of a controller is the leader.
	lock bool
}

var infos = &genericapirequest.RequestInfoFactory{
	APIPrefixes: sets.NewString("api", "apis"), GrouplessAPIPrefixes: sets.NewString("api"),
}

// identify returns what a request does, and a copy of the request whose body can still be read.
func identify(r *http.Request) (call, *http.Request, error) {
	info, err := infos.NewRequestInfo(r)
	if err != nil || !info.IsResourceRequest {
		return call{}, r, err
	}
	c := call{
		Op: Op{
			Verb: info.Verb, Subresource: info.Subresource, Namespace: info.Namespace,
			Resource: schema.GroupVersionResource{
				Group: info.APIGroup, Version: info.APIVersion, Resource: info.Resource,
			},
		},
		resource: true,
		dryRun:   r.URL.Query().Has("dryRun"),
	}
	c.lock = c.Resource.Resource == "leases" && (c.Verb == "create" || c.Verb == "update")
	name := info.Name
	if (c.writes() || c.Verb == "create") && r.Body != nil {
		data, err := io.ReadAll(r.Body)
		if err := firstError(err, r.Body.Close()); err != nil {
			return call{}, r, err
		}
		r = r.Clone(r.Context())
		r.Body = io.NopCloser(bytes.NewReader(data))
		b := parse(data)
		c.precondition = b.precondition(c.Verb)
		_, leader := b.Metadata.Annotations[resourcelock.LeaderElectionRecordAnnotationKey]
		c.lock = c.lock || leader
		if name == "" && b.Metadata.GenerateName != "" {
			name = b.Metadata.GenerateName + "*"
		} else if name == "" {
			name = b.Metadata.Name
		}
	}
	c.Name, c.name = canonical(name), info.Name
	return c, r, nil
}

// body is what the engine needs of a request's or a response's body.
type body struct {
	Metadata struct {
		Name, GenerateName, ResourceVersion string
		Annotations                         map[string]string
	}
	Preconditions struct{ ResourceVersion string }
}

// parse reads JSON, and protobuf of the kinds that client-go knows. Of other bodies it returns
// nothing, and the requests are disturbed as they are.
func parse(data []byte) (b body) {
	if !bytes.HasPrefix(data, []byte("k8s\x00")) {
		_ = json.Unmarshal(data, &b)
		return b
	}
	object, _, err := scheme.Codecs.UniversalDeserializer().Decode(data, nil, nil)
	if err != nil {
		return b
	}
	if o, ok := object.(*metav1.DeleteOptions); ok {
		if o.Preconditions != nil && o.Preconditions.ResourceVersion != nil {
			b.Preconditions.ResourceVersion = *o.Preconditions.ResourceVersion
		}
	} else if o, err := meta.Accessor(object); err == nil {
		b.Metadata.Name, b.Metadata.GenerateName = o.GetName(), o.GetGenerateName()
		b.Metadata.ResourceVersion = o.GetResourceVersion()
		b.Metadata.Annotations = o.GetAnnotations()
	}
	return b
}

func (b body) precondition(verb string) bool {
	switch verb {
	case "update", "patch":
		return b.Metadata.ResourceVersion != ""
	case "delete":
		return b.Preconditions.ResourceVersion != ""
	}
	return false
}

func firstError(errs ...error) error {
	for _, err := range errs {
		if err != nil {
			return err
		}
	}
	return nil
}
