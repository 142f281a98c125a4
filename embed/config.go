package embed

import (
	"time"

	"go.etcd.io/bbolt"
	"go.etcd.io/etcd/client/pkg/v3/types"
	"go.etcd.io/etcd/server/v3/config"
	"go.etcd.io/etcd/server/v3/features"
	"go.uber.org/zap"
)

const (
	memberName = "default"
	// The address that etcd puts into a member's record. Nobody listens there.
	peerHost = "localhost:2380"

	// etcd's defaults. A single member has no use for faster ticks: elect does not wait for them, and they cost CPU time for ever.
	tickMillis    = 100
	electionTicks = 10

	// Raft entries stay in memory, each as large as the object that was written: etcd's 10,000 and 5,000 would be tens of MiB. More are
	// kept than a restart replays, so that compaction during a replay finds nothing to do (see replayGrace).
	snapshotCount          = 1000
	snapshotCatchUpEntries = 1500

	// etcd's own limit for one request, which Kubernetes' users know.
	maxRequestBytes = 3 * 512 * 1024

	// A watch without events hears this often that it is up to date; Kubernetes' watch caches live on that.
	progressInterval = 5 * time.Second
)

func serverConfig(dir string, ephemeral bool, lg *zap.Logger) config.ServerConfig {
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
		UnsafeNoFsync:          ephemeral,

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
