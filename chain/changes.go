package chain

import (
	"context"

	"github.com/kinproc/kinproc/chain/internal/catchup"
)

// Changes are what a reset has changed.
type Changes = catchup.Changes

// Change is the change of one object.
type Change = catchup.Object

// NewChange returns the change of a stored object, which is nil where there is none, and false if
// the object cannot be read.
func NewChange(before, after []byte, revision int64) (Change, bool) {
	return catchup.NewObject(before, after, revision)
}

// CatchUp waits until the servers have forgotten the state before the changes in what they make of
// CRDs and APIServices: routes, discovery documents, proxies, and the storage of custom resources,
// which the extensions server keeps by the UID of the CRD.
func (c *Chain) CatchUp(ctx context.Context, changes Changes) error {
	if err := c.Extensions.CatchUp(ctx, changes); err != nil {
		return err
	}
	return c.Aggregator.CatchUp(ctx, changes)
}
