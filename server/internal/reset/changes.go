package reset

import (
	"encoding/json"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/tools/cache"

	"github.com/kinproc/kinproc/chain"
)

// seen returns the changes as followers see them. Of an object that was changed twice, that is the
// last change, with the state before the first.
func (r *reset) seen() chain.Changes {
	at := map[string]int{}
	all := chain.Changes{Opened: r.opened}
	for _, c := range r.changes {
		if i, ok := at[c.key]; ok {
			all.Objects[i].After, all.Objects[i].Revision = c.after, c.revision
			continue
		}
		stored := c.after
		if stored == nil {
			stored = c.before
		}
		if kind, name, ok := identify(stored); ok {
			at[c.key] = len(all.Objects)
			all.Objects = append(all.Objects, chain.Change{
				Kind: kind, Name: name, Before: c.before, After: c.after, Revision: c.revision,
			})
		}
	}
	return all
}

var protobufMagic = string([]byte{0x6b, 0x38, 0x73, 0x00})

// identify reads the kind and the name of a stored object.
func identify(stored []byte) (kind schema.GroupKind, name string, ok bool) {
	var object metav1.PartialObjectMetadata
	if len(stored) > len(protobufMagic) && string(stored[:len(protobufMagic)]) == protobufMagic {
		var envelope runtime.Unknown
		// In every kind, the metadata is field 1.
		if envelope.Unmarshal(stored[len(protobufMagic):]) != nil ||
			object.Unmarshal(envelope.Raw) != nil {
			return kind, "", false
		}
		object.TypeMeta = metav1.TypeMeta{APIVersion: envelope.APIVersion, Kind: envelope.Kind}
	} else if json.Unmarshal(stored, &object) != nil {
		return kind, "", false
	}
	return object.GroupVersionKind().GroupKind(), cache.MetaObjectToName(&object).String(),
		object.Name != ""
}
