package extensions

import (
	"hash/maphash"
	"reflect"
	"sync"
	"unsafe"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
)

type schemaProps = apiextensionsv1.JSONSchemaProps

// sharer makes equal parts of CRDs' schemas one in memory. A decoded schema takes four times as
// much as its JSON, and much of it is there more than once: in the versions of a CRD, in fields of
// the same type, and in CRDs that embed the same types, such as those of pods.
type sharer struct {
	seed  maphash.Seed
	limit int // of bytes

	mu sync.Mutex
	// parts are the properties of schemas by their hash.
	parts map[uint64][]map[string]schemaProps
	bytes int // about what the parts take
}

const (
	// partsKept limits the bytes of the parts that are remembered. They stay in memory though their
	// CRDs have changed.
	partsKept = 64 << 20
	// propertyBytes is what a property takes besides its strings.
	propertyBytes = int(unsafe.Sizeof(schemaProps{}))
)

func newSharer() *sharer {
	return &sharer{
		seed: maphash.MakeSeed(), limit: partsKept, parts: map[uint64][]map[string]schemaProps{},
	}
}

// forget forgets all parts, so that those of deleted CRDs do not stay in memory.
func (s *sharer) forget() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.clear()
}

func (s *sharer) clear() {
	clear(s.parts)
	s.bytes = 0
}

// share changes a CRD that nobody else has yet.
func (s *sharer) share(crd *apiextensionsv1.CustomResourceDefinition) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.bytes > s.limit {
		s.clear()
	}
	for i := range crd.Spec.Versions {
		if v := crd.Spec.Versions[i].Schema; v != nil && v.OpenAPIV3Schema != nil {
			s.schema(v.OpenAPIV3Schema)
		}
	}
}

// schema shares the parts of a schema, and returns its hash and the bytes that are not in parts.
func (s *sharer) schema(p *schemaProps) (hash uint64, bytes int) {
	var h maphash.Hash
	h.SetSeed(s.seed)
	// The rest is encoded for the hash of this schema.
	rest := *p
	for _, properties := range []*map[string]schemaProps{
		&p.Properties, &p.PatternProperties, (*map[string]schemaProps)(&p.Definitions),
	} {
		maphash.WriteComparable(&h, s.properties(properties))
	}
	rest.Properties, rest.PatternProperties, rest.Definitions = nil, nil, nil
	inside := func(p *schemaProps) {
		hash, n := s.schema(p)
		maphash.WriteComparable(&h, hash)
		bytes += n
	}
	if p.Items != nil && p.Items.Schema != nil {
		inside(p.Items.Schema)
		rest.Items = nil
	}
	if p.AdditionalProperties != nil && p.AdditionalProperties.Schema != nil {
		inside(p.AdditionalProperties.Schema)
		rest.AdditionalProperties = nil
	}
	for _, all := range [][]schemaProps{p.AllOf, p.AnyOf, p.OneOf} {
		for i := range all {
			inside(&all[i])
		}
	}
	rest.AllOf, rest.AnyOf, rest.OneOf = nil, nil, nil
	if encoded, err := rest.Marshal(); err == nil {
		h.Write(encoded)
		bytes += len(encoded)
	}
	return h.Sum64(), bytes + propertyBytes
}

// properties shares the schemas of properties and then all of them, and returns their hash.
func (s *sharer) properties(properties *map[string]schemaProps) (hash uint64) {
	if len(*properties) == 0 {
		return 0
	}
	bytes := 0
	for name, p := range *properties {
		own, n := s.schema(&p)
		hash += maphash.Comparable(s.seed, [2]uint64{maphash.String(s.seed, name), own})
		bytes += n + len(name)
		(*properties)[name] = p
	}
	for _, part := range s.parts[hash] {
		if reflect.DeepEqual(part, *properties) {
			*properties = part
			return hash
		}
	}
	s.parts[hash] = append(s.parts[hash], *properties)
	s.bytes += bytes
	return hash
}
