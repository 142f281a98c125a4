package embed

import (
	"context"
	"slices"
	"sync/atomic"
	"testing"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	"google.golang.org/grpc"
)

// member is one whose reads begin to include what watches have received when they wait for the log.
type member struct {
	pb.KVClient
	answers []answer
	waited  []bool // for each read, whether it waited for the log
}

type answer struct {
	revision int64
	err      error
}

func (m *member) Range(
	_ context.Context, r *pb.RangeRequest, _ ...grpc.CallOption,
) (*pb.RangeResponse, error) {
	a := m.answers[len(m.waited)]
	m.waited = append(m.waited, !r.Serializable)
	if a.err != nil {
		return nil, a.err
	}
	return &pb.RangeResponse{Header: &pb.ResponseHeader{Revision: a.revision}}, nil
}

func TestReadsThatWait(t *testing.T) {
	t.Parallel()
	const watched = 7
	elected := answer{err: rpctypes.ErrGRPCLeaderChanged}
	for name, test := range map[string]struct {
		answers []answer
		waited  []bool
	}{
		"new enough":                  {[]answer{{revision: 7}}, []bool{false}},
		"older than what was watched": {[]answer{{revision: 6}, {revision: 7}}, []bool{false, true}},
		"refused":                     {[]answer{{err: rpctypes.ErrGRPCFutureRev}, {revision: 8}}, []bool{false, true}},
		"during an election": {
			[]answer{{revision: 6}, elected, {revision: 7}}, []bool{false, true, true},
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			m, latest := &member{answers: test.answers}, &atomic.Int64{}
			latest.Store(watched)
			got, err := kvClient{m, newFaults(), latest}.Range(t.Context(), &pb.RangeRequest{})
			if err != nil || got.Header.Revision < watched || !slices.Equal(m.waited, test.waited) {
				t.Errorf("got %v, %v, and reads that waited: %v, want %v", got, err, m.waited, test.waited)
			}
		})
	}
}
