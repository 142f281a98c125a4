package embed

import (
	"context"
	"fmt"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
)

// Change is a change of one key.
type Change struct {
	Key string
	// Delete deletes the key; otherwise the key gets the value and the lease.
	Delete bool
	Value  []byte
	Lease  int64
}

// Change makes all changes in one transaction, in their order, and returns its revision. Each key
// may occur once. The limits of ordinary requests on size and number do not apply.
func (e *Etcd) Change(ctx context.Context, changes []Change) (revision int64, err error) {
	txn := &pb.TxnRequest{}
	for _, c := range changes {
		op := &pb.RequestOp{}
		if c.Delete {
			op.Request = &pb.RequestOp_RequestDeleteRange{
				RequestDeleteRange: &pb.DeleteRangeRequest{Key: []byte(c.Key)},
			}
		} else {
			op.Request = &pb.RequestOp_RequestPut{
				RequestPut: &pb.PutRequest{Key: []byte(c.Key), Value: c.Value, Lease: c.Lease},
			}
		}
		txn.Success = append(txn.Success, op)
	}
	// It compares nothing, so it may meet transactions in the store (see storeWriter).
	response, err := untilFault(ctx, e.faults, func() (*pb.TxnResponse, error) {
		return e.server.Txn(ctx, txn)
	})
	if err != nil {
		return 0, fmt.Errorf("change %d keys: %w", len(changes), err)
	}
	return response.GetHeader().GetRevision(), nil
}
