package legacy

import (
	"k8s.io/apiserver/pkg/registry/rest"

	"github.com/kinproc/kinproc/chain/kind"
)

// Bindings declares bindings, the old way to assign a pod to a node. Schedulers use pods/binding.
func Bindings(binder *bindingREST) *kind.Virtual {
	return &kind.Virtual{Plural: "bindings", New: func() rest.Storage { return binder }}
}
