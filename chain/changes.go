package chain

import (
	"context"
	"slices"

	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/kinproc/kinproc/chain/internal/catchup"
)

// Changes are what a reset has changed.
type Changes = catchup.Changes

// Change is the change of one object.
type Change = catchup.Object

// CatchUp waits until the servers have forgotten the state before the changes in what they make of
// CRDs and APIServices: routes, discovery documents, proxies, and the storage of custom resources,
// which the extensions server keeps by the UID of the CRD.
func (c *Chain) CatchUp(ctx context.Context, changes Changes) error {
	local := c.LocalGroupVersions() // their documents are not made from CRDs
	if err := c.Extensions.CatchUp(ctx, changes, func(gv schema.GroupVersion) bool {
		return slices.Contains(local, gv) || c.Aggregator.Answers(gv)
	}); err != nil {
		return err
	}
	return c.Aggregator.CatchUp(ctx, changes)
}
