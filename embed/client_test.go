package embed

import (
	"context"
	"testing"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	"google.golang.org/grpc"
)

// electing is a member that becomes its own leader during the first read.
type electing struct {
	pb.KVClient
	reads int
}

func (e *electing) Range(
	context.Context, *pb.RangeRequest, ...grpc.CallOption,
) (*pb.RangeResponse, error) {
	if e.reads++; e.reads == 1 {
		return nil, rpctypes.ErrGRPCLeaderChanged
	}
	return &pb.RangeResponse{Count: 1}, nil
}

func TestReadsDuringAnElection(t *testing.T) {
	t.Parallel()
	member := &electing{}
	answer, err := (&kvClient{KVClient: member, faults: newFaults()}).Range(t.Context(), &pb.RangeRequest{})
	if err != nil || answer.Count != 1 || member.reads != 2 {
		t.Errorf("got %v, %v after %d reads, want an answer after 2", answer, err, member.reads)
	}
}
