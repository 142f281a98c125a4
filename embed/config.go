package embed

import (
	"sync"
	"time"

	"go.etcd.io/bbolt"
	"go.etcd.io/etcd/client/pkg/v3/types"
	"go.etcd.io/etcd/server/v3/config"
	"go.etcd.io/etcd/server/v3/features"
	"go.etcd.io/etcd/server/v3/storage/wal"
	"go.uber.org/zap"
)

const (
	memberName = "default"
	// peerHost is the peer address in the member's record. Nothing listens there.
	peerHost = "localhost:2380"

	// The ticks are etcd's defaults. A single member does not benefit from faster ticks: elect does
	// not wait for them, and they would cost CPU time as long as the member runs.
	tickMillis    = 100
	electionTicks = 10
	// The ticks of a member that keeps nothing are rare, so that they cost little when a test lets
	// days pass. Leases last three ticks at least.
	ephemeralTickMillis    = 1000
	ephemeralElectionTicks = 2

	// Raft entries stay in memory, and each is as large as the object that was written, which may
	// be 1.5 MB. Etcd's defaults are 10,000 and 5,000 entries; a write takes as long with fewer.
	// More entries are kept than a restart replays, so that compaction has nothing to do during a
	// replay (see replayGrace).
	snapshotCount          = 100
	snapshotCatchUpEntries = 110

	// maxRequestBytes is etcd's default limit for one request, which Kubernetes users are familiar
	// with.
	maxRequestBytes = 3 * 512 * 1024
	// maxChangeBytes limits what [Etcd.Change] writes in one step.
	maxChangeBytes = 1 << 30

	// progressInterval is how often an idle watch is notified that it is up to date. The watch
	// caches of Kubernetes depend on these notifications.
	progressInterval = 5 * time.Second
)

// segmentSize is the size of the files of etcd's write-ahead log. Etcd allocates two of them on
// disk when it starts, each of 64 MB by default: a hundred members, as in a test binary with
// parallel tests, would fill a disk with nothing. A shorter file is only replaced more often.
const segmentSize = 4 << 20

// setSegmentSize sets the size, which is a variable of etcd's for the whole process.
var setSegmentSize = sync.OnceFunc(func() { wal.SegmentSizeBytes = segmentSize })

func serverConfig(dir string, ephemeral bool, lg *zap.Logger) config.ServerConfig {
	c := keptConfig(dir, lg)
	if ephemeral {
		c.UnsafeNoFsync = true
		c.TickMs, c.ElectionTicks = ephemeralTickMillis, ephemeralElectionTicks
	}
	return c
}

func keptConfig(dir string, lg *zap.Logger) config.ServerConfig {
	peers := types.URLs{{Scheme: "http", Host: peerHost}}
	return config.ServerConfig{
		Name:                memberName,
		DataDir:             dir,
		PeerURLs:            peers,
		InitialPeerURLsMap:  types.URLsMap{memberName: peers},
		InitialClusterToken: "kinproc",
		NewCluster:          true,
		StrictReconfigCheck: true,

		TickMs:                     tickMillis,
		ElectionTicks:              electionTicks,
		InitialElectionTickAdvance: true,

		SnapshotCount:          snapshotCount,
		SnapshotCatchUpEntries: snapshotCatchUpEntries,
		MaxSnapFiles:           1,
		MaxWALFiles:            1,
		BackendFreelistType:    bbolt.FreelistMapType,

		MaxTxnOps:                   128,
		MaxRequestBytes:             maxRequestBytes,
		MaxConcurrentStreams:        1 << 20,
		WatchProgressNotifyInterval: progressInterval,
		WarningApplyDuration:        100 * time.Millisecond,
		WarningUnaryRequestDuration: 300 * time.Millisecond,
		AuthToken:                   "simple",
		TokenTTL:                    300,
		BcryptCost:                  10,
		CompactHashCheckTime:        time.Minute,

		ServerFeatureGate: features.NewDefaultServerFeatureGate(memberName, lg),
		V2Deprecation:     config.V2DeprDefault,
		Metrics:           "basic",
		Logger:            lg,
	}
}
