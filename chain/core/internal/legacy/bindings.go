package legacy

import (
	"k8s.io/apiserver/pkg/registry/rest"

	"github.com/kinproc/kinproc/chain/kind"
)

// Bindings declares bindings, the legacy resource that assigns a pod to a node. Schedulers use
// pods/binding instead.
func Bindings(binder *bindingREST) *kind.Virtual {
	return &kind.Virtual{Plural: "bindings", New: func() rest.Storage { return binder }}
}
