package embed

import (
	"context"
	"slices"
	"sync/atomic"
	"testing"
	"time"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	"go.etcd.io/etcd/server/v3/etcdserver/api/v3rpc"
	"go.etcd.io/etcd/server/v3/proxy/grpcproxy/adapter"
	"google.golang.org/grpc"
	"google.golang.org/protobuf/proto"
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

// The store answers reads as the member would.
func TestReadsOfTheStore(t *testing.T) {
	t.Parallel()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	e := startEphemeral(t)
	var written []int64
	for _, key := range []string{"/a", "/a", "/a/b", "/c", "/a"} {
		put, err := e.Client().Put(ctx, key, "value of "+key)
		if err != nil {
			t.Fatal(err)
		}
		written = append(written, put.Header.Revision)
	}
	if _, err := e.Client().Compact(ctx, written[1]); err != nil {
		t.Fatal(err)
	}
	member := adapter.KvServerToKvClient(v3rpc.NewQuotaKVServer(e.server))
	for name, r := range map[string]*pb.RangeRequest{
		"a key":                        {Key: []byte("/a")},
		"a key of many":                {Key: []byte("/a"), Limit: 1},
		"a missing key":                {Key: []byte("/b")},
		"no key":                       {},
		"an earlier revision":          {Key: []byte("/a"), Revision: written[2]},
		"a revision before the key":    {Key: []byte("/c"), Revision: written[2]},
		"a compacted revision":         {Key: []byte("/a"), Revision: written[0]},
		"a revision to come":           {Key: []byte("/a"), Revision: written[4] + 1},
		"a range":                      {Key: []byte("/a"), RangeEnd: []byte("/b")},
		"a part of a range":            {Key: []byte("/a"), RangeEnd: []byte("/b"), Limit: 1},
		"all that follows":             {Key: []byte("/a"), RangeEnd: []byte{0}},
		"a range backwards":            {Key: []byte("/"), RangeEnd: []byte("0"), SortOrder: 2},
		"a range by an unknown field":  {Key: []byte("/"), RangeEnd: []byte("0"), SortTarget: 9},
		"a key without its value":      {Key: []byte("/a"), KeysOnly: true},
		"whether there is a key":       {Key: []byte("/a"), CountOnly: true},
		"a key unless it is older":     {Key: []byte("/c"), MinModRevision: written[4]},
		"a key unless it is newer":     {Key: []byte("/c"), MaxModRevision: written[0]},
		"a key unless made before":     {Key: []byte("/c"), MinCreateRevision: written[4]},
		"a key unless made later":      {Key: []byte("/c"), MaxCreateRevision: written[0]},
		"an order that does not exist": {Key: []byte("/a"), SortOrder: 7},
	} {
		r.Serializable = true
		want, wantErr := member.Range(ctx, r)
		got, err := storeReader{member, e.server}.Range(ctx, r)
		if !proto.Equal(got, want) || err != wantErr {
			t.Errorf("%s: got %v, %v, want %v, %v", name, got, err, want, wantErr)
		}
	}
}
