package extensions

import (
	"hash/maphash"
	"reflect"
	"sync"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
)

type schemaProps = apiextensionsv1.JSONSchemaProps

// sharer makes equal parts of CRDs' schemas one in memory. A decoded schema takes four times as
// much as its JSON, and much of it is there more than once: in the versions of a CRD, in fields of
// the same type, and in CRDs that embed the same types, such as those of pods.
type sharer struct {
	seed maphash.Seed

	mu sync.Mutex
	// parts are the properties of schemas by their hash.
	parts map[uint64][]map[string]schemaProps
	count int
}

// partsKept limits the parts that are remembered. They stay in memory though their CRDs have
// changed.
const partsKept = 50_000

func newSharer() *sharer {
	return &sharer{seed: maphash.MakeSeed(), parts: map[uint64][]map[string]schemaProps{}}
}

// forget forgets all parts, so that those of deleted CRDs do not stay in memory.
func (s *sharer) forget() {
	s.mu.Lock()
	defer s.mu.Unlock()
	clear(s.parts)
	s.count = 0
}

// share changes a CRD that nobody else has yet.
func (s *sharer) share(crd *apiextensionsv1.CustomResourceDefinition) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.count > partsKept {
		clear(s.parts)
		s.count = 0
	}
	for i := range crd.Spec.Versions {
		if v := crd.Spec.Versions[i].Schema; v != nil && v.OpenAPIV3Schema != nil {
			s.schema(v.OpenAPIV3Schema)
		}
	}
}

// schema shares the parts of a schema, and returns its hash.
func (s *sharer) schema(p *schemaProps) uint64 {
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
	if p.Items != nil && p.Items.Schema != nil {
		maphash.WriteComparable(&h, s.schema(p.Items.Schema))
		rest.Items = nil
	}
	if p.AdditionalProperties != nil && p.AdditionalProperties.Schema != nil {
		maphash.WriteComparable(&h, s.schema(p.AdditionalProperties.Schema))
		rest.AdditionalProperties = nil
	}
	for _, all := range [][]schemaProps{p.AllOf, p.AnyOf, p.OneOf} {
		for i := range all {
			maphash.WriteComparable(&h, s.schema(&all[i]))
		}
	}
	rest.AllOf, rest.AnyOf, rest.OneOf = nil, nil, nil
	if encoded, err := rest.Marshal(); err == nil {
		h.Write(encoded)
	}
	return h.Sum64()
}

// properties shares the schemas of properties and then all of them, and returns their hash.
func (s *sharer) properties(properties *map[string]schemaProps) (hash uint64) {
	if len(*properties) == 0 {
		return 0
	}
	for name, p := range *properties {
		hash += maphash.Comparable(s.seed, [2]uint64{maphash.String(s.seed, name), s.schema(&p)})
		(*properties)[name] = p
	}
	for _, part := range s.parts[hash] {
		if reflect.DeepEqual(part, *properties) {
			*properties = part
			return hash
		}
	}
	s.parts[hash] = append(s.parts[hash], *properties)
	s.count++
	return hash
}
