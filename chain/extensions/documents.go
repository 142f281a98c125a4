package extensions

import (
	"bytes"
	"crypto/sha512"
	"encoding/json"
	"fmt"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"sync"

	"k8s.io/apiextensions-apiserver/pkg/apihelpers"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	apiextensionslisters "k8s.io/apiextensions-apiserver/pkg/client/listers/apiextensions/v1"
	"k8s.io/apiextensions-apiserver/pkg/controller/openapi/builder"
	apiextensionsfeatures "k8s.io/apiextensions-apiserver/pkg/features"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime/schema"
	utilfeature "k8s.io/apiserver/pkg/util/feature"
	"k8s.io/kube-openapi/pkg/handler3"
	"k8s.io/kube-openapi/pkg/spec3"
)

// openAPIRoot is the path of the list of OpenAPI v3 documents. A document is at the path of its
// group version below it.
const openAPIRoot = "/openapi/v3"

// documents serves the OpenAPI v3 documents of custom resources. apiextensions-apiserver builds a
// document with each change to a CRD and keeps all of them, which takes more memory than the
// CRDs themselves. Here a document is built when a client asks for it, and not kept. So the
// list of documents cannot have hashes of documents. It has hashes of the CRDs instead.
type documents struct {
	next        http.Handler // serves the other documents
	definitions apiextensionslisters.CustomResourceDefinitionLister

	mu     sync.Mutex
	hashes map[string]hashed // by the name of the CRD
}

// hashed is a CRD with the hash of its spec.
type hashed struct {
	definition *apiextensionsv1.CustomResourceDefinition
	hash       [sha512.Size]byte
}

func (d *documents) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	switch gv, below := strings.CutPrefix(r.URL.Path, openAPIRoot+"/apis/"); {
	case r.URL.Path == openAPIRoot:
		d.serveList(w, r)
	case below && d.serve(w, r, gv):
	default:
		d.next.ServeHTTP(w, r)
	}
}

// byVersion returns the CRDs by each group version for which they have a document. The
// CRDs of a group version are sorted by their names.
func (d *documents) byVersion() (
	map[schema.GroupVersion][]*apiextensionsv1.CustomResourceDefinition, error,
) {
	all, err := d.definitions.List(labels.Everything())
	if err != nil {
		return nil, err
	}
	slices.SortFunc(all, func(a, b *apiextensionsv1.CustomResourceDefinition) int {
		return strings.Compare(a.Name, b.Name)
	})
	versions := map[schema.GroupVersion][]*apiextensionsv1.CustomResourceDefinition{}
	for _, definition := range all {
		if !apihelpers.IsCRDConditionTrue(definition, apiextensionsv1.Established) {
			continue
		}
		for _, v := range definition.Spec.Versions {
			if v.Served {
				gv := schema.GroupVersion{Group: definition.Spec.Group, Version: v.Name}
				versions[gv] = append(versions[gv], definition)
			}
		}
	}
	return versions, nil
}

// hash returns the hash of the document that is made from CRDs.
func (d *documents) hash(
	definitions []*apiextensionsv1.CustomResourceDefinition,
) (string, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	all := sha512.New()
	for _, definition := range definitions {
		known := d.hashes[definition.Name]
		if known.definition != definition {
			spec, err := definition.Spec.Marshal()
			if err != nil {
				return "", fmt.Errorf("encode CRD %s: %w", definition.Name, err)
			}
			known = hashed{definition, sha512.Sum512(spec)}
			if d.hashes == nil {
				d.hashes = map[string]hashed{}
			}
			d.hashes[definition.Name] = known
		}
		all.Write(known.hash[:])
	}
	return fmt.Sprintf("%X", all.Sum(nil)), nil
}

// forget drops the hashes of CRDs that no longer exist.
func (d *documents) forget() {
	d.mu.Lock()
	defer d.mu.Unlock()
	for name := range d.hashes {
		if _, err := d.definitions.Get(name); err != nil {
			delete(d.hashes, name)
		}
	}
}

// serveList adds the documents of custom resources to the list that the next handler serves.
func (d *documents) serveList(w http.ResponseWriter, r *http.Request) {
	others := &response{header: http.Header{}, status: http.StatusOK}
	plain := r.Clone(r.Context())
	for _, condition := range []string{"If-None-Match", "If-Modified-Since", "Range"} {
		plain.Header.Del(condition)
	}
	d.next.ServeHTTP(others, plain)
	var list handler3.OpenAPIV3Discovery
	if others.status != http.StatusOK || json.Unmarshal(others.body.Bytes(), &list) != nil {
		d.next.ServeHTTP(w, r)
		return
	}
	versions, err := d.byVersion()
	if err != nil {
		http.Error(w, err.Error(), http.StatusInternalServerError)
		return
	}
	for gv, definitions := range versions {
		hash, err := d.hash(definitions)
		if err != nil {
			http.Error(w, err.Error(), http.StatusInternalServerError)
			return
		}
		list.Paths["apis/"+gv.String()] = handler3.OpenAPIV3DiscoveryGroupVersion{
			ServerRelativeURL: openAPIRoot + "/apis/" + gv.String() + "?hash=" + hash,
		}
	}
	d.forget()
	body, err := json.Marshal(list)
	if err != nil {
		http.Error(w, err.Error(), http.StatusInternalServerError)
		return
	}
	etag := strconv.Quote(fmt.Sprintf("%X", sha512.Sum512(body)))
	w.Header().Set("Etag", etag)
	w.Header().Set("Content-Type", "application/json")
	if r.Header.Get("If-None-Match") == etag {
		w.WriteHeader(http.StatusNotModified)
		return
	}
	_, _ = w.Write(body) // the client has gone
}

// serve serves the document of a group version. It reports whether there is one.
func (d *documents) serve(w http.ResponseWriter, r *http.Request, path string) bool {
	gv, err := schema.ParseGroupVersion(path)
	if err != nil {
		return false
	}
	versions, err := d.byVersion()
	if err != nil || len(versions[gv]) == 0 {
		return false
	}
	hash, err := d.hash(versions[gv])
	if err != nil {
		http.Error(w, err.Error(), http.StatusInternalServerError)
		return true
	}
	if asked := r.URL.Query().Get("hash"); asked != "" && asked != hash {
		http.Redirect(w, r, openAPIRoot+"/apis/"+path+"?hash="+hash, http.StatusMovedPermanently)
		return true
	}
	etag := strconv.Quote(hash)
	if r.Header.Get("If-None-Match") == etag {
		w.Header().Set("Etag", etag)
		w.WriteHeader(http.StatusNotModified)
		return true
	}
	document, err := build(versions[gv], gv.Version)
	if err != nil {
		http.Error(w, err.Error(), http.StatusInternalServerError)
		return true
	}
	// The service chooses the format. With the hash of its own document in the request, it adds the
	// headers that let clients keep the document.
	service := handler3.NewOpenAPIService()
	service.UpdateGroupVersion("apis/"+path, document)
	unhashed := r.Clone(r.Context())
	unhashed.URL.RawQuery = ""
	if r.URL.Query().Get("hash") != "" {
		w.Header().Set("Cache-Control", "public, immutable")
	}
	service.HandleGroupVersion(tagged{w, etag}, unhashed)
	return true
}

// build makes the document of a version of all CRDs in a group.
func build(
	definitions []*apiextensionsv1.CustomResourceDefinition, version string,
) (*spec3.OpenAPI, error) {
	options := builder.Options{
		IncludeSelectableFields: utilfeature.DefaultFeatureGate.Enabled(
			apiextensionsfeatures.CustomResourceFieldSelectors),
	}
	var specs []*spec3.OpenAPI
	for _, definition := range definitions {
		spec, err := builder.BuildOpenAPIV3(definition, version, options)
		if err != nil {
			// As in apiextensions-apiserver, other kinds of the group keep their documents.
			continue
		}
		specs = append(specs, spec)
	}
	return builder.MergeSpecsV3(specs...)
}

// tagged is a response with an entity tag instead of the handler's.
type tagged struct {
	http.ResponseWriter
	etag string
}

func (t tagged) WriteHeader(status int) {
	t.Header().Set("Etag", t.etag)
	t.ResponseWriter.WriteHeader(status)
}

// response is a response in memory.
type response struct {
	header http.Header
	status int
	body   bytes.Buffer
}

func (r *response) Header() http.Header         { return r.header }
func (r *response) WriteHeader(status int)      { r.status = status }
func (r *response) Write(p []byte) (int, error) { return r.body.Write(p) }
