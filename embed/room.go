package embed

import (
	"context"
	"errors"
	"fmt"
	"os"
	"time"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"
	"go.etcd.io/etcd/server/v3/storage"
	"go.etcd.io/etcd/server/v3/storage/datadir"
)

const (
	// DefaultQuotaBytes is the quota of etcd's own programs.
	DefaultQuotaBytes = storage.DefaultQuotaBytes
	// MinQuotaBytes and MaxQuotaBytes are the smallest and the largest quota.
	MinQuotaBytes = 16 << 20
	MaxQuotaBytes = 1 << 40

	// shrinkBytes is the number of unused bytes from which on a database file is worth rewriting.
	shrinkBytes = 32 << 20
	// commits is the number of commits after which bbolt counts the pages that a compaction has
	// freed: they stay reserved for the readers of the two transactions before.
	commits = 3
	// readersTick and readersTicks are how often readers that end are looked for.
	readersTick  = time.Millisecond
	readersTicks = 200
)

// reserve is what the database may have beyond its quota, for deletions and for what makes room.
func reserve(quota int64) int64 { return max(quota/8, MinQuotaBytes) }

// limit returns the size at which etcd refuses to write. A database that is larger than the quota
// must be able to start.
func limit(quota int64, dir string) int64 {
	if info, err := os.Stat(datadir.ToBackendFileName(dir)); err == nil {
		quota = max(quota, info.Size())
	}
	return quota + reserve(quota)
}

// Room says how full the database is, in bytes.
type Room struct {
	// Quota is what the database should have at most: [Options.QuotaBytes].
	Quota int64 `json:"quotaBytes"`
	// Limit is the size of the file from which on etcd refuses to write. It is larger than Quota.
	Limit int64 `json:"limitBytes"`
	// File is the size of the file, and Used is what of it holds data, including old revisions.
	File int64 `json:"fileBytes"`
	Used int64 `json:"usedBytes"`
}

// Full reports whether the file is as large as it should be at most, or larger.
func (r Room) Full() bool { return r.File >= r.Quota }

// Room returns how full the database is. The figures are those of the last commit, which happens
// every 100 milliseconds.
func (e *Etcd) Room() Room {
	backend := e.server.Backend()
	return Room{Quota: e.quota, Limit: e.limit, File: backend.Size(), Used: backend.SizeInUse()}
}

// MakeRoom removes all old revisions, also if etcd refuses to write. If much of the file is unused
// then, it rewrites the file without that, during which reads and writes wait. It ends the alarm
// that stops writes at the limit if there is room now. MakeRoom itself writes nothing. It returns
// the oldest revision that is left.
func (e *Etcd) MakeRoom(ctx context.Context) (oldest int64, err error) {
	oldest, err = e.compact(ctx)
	if err != nil {
		return 0, fmt.Errorf("remove old revisions: %w", err)
	}
	if r := e.Room(); worthRewriting(r) {
		if err := e.defragment(ctx); err != nil {
			return oldest, fmt.Errorf("rewrite the database file: %w", err)
		}
	}
	if err := e.endAlarm(ctx); err != nil {
		return oldest, fmt.Errorf("end etcd's alarm: %w", err)
	}
	return oldest, nil
}

// worthRewriting reports whether a file is at least half unused, or an eighth if it is large.
func worthRewriting(r Room) bool {
	unused := r.File - r.Used
	return unused >= shrinkBytes && unused >= r.File/2 || r.File >= r.Quota && unused >= r.File/8
}

// compact removes all old revisions and waits until that is done.
func (e *Etcd) compact(ctx context.Context) (oldest int64, err error) {
	oldest = e.server.KV().Rev()
	_, err = e.client.Compact(ctx, oldest, clientv3.WithCompactPhysical())
	if errors.Is(err, rpctypes.ErrCompacted) { // there are none, or another one was faster
		err = nil
	}
	if err != nil {
		return 0, err
	}
	_, err = untilFault(ctx, e.faults, func() (struct{}, error) {
		for range commits {
			e.server.Backend().ForceCommit()
			if err := e.awaitReaders(ctx); err != nil {
				return struct{}{}, err
			}
		}
		return struct{}{}, nil
	})
	return oldest, err
}

// awaitReaders waits for the readers of the transaction before the last one. A long read, such as
// that of a snapshot, is not waited for.
func (e *Etcd) awaitReaders(ctx context.Context) error {
	tick := time.NewTicker(readersTick)
	defer tick.Stop()
	for range readersTicks {
		if e.server.Backend().OpenReadTxN() <= 1 { // the reader of the next requests
			return nil
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
	return nil
}

// Shrink rewrites the database file without what is unused. Reads and writes wait meanwhile.
func (e *Etcd) Shrink(ctx context.Context) error {
	if err := e.defragment(ctx); err != nil {
		return fmt.Errorf("rewrite the database file: %w", err)
	}
	return nil
}

func (e *Etcd) defragment(ctx context.Context) error {
	_, err := untilFault(ctx, e.faults, func() (struct{}, error) {
		return struct{}{}, e.server.Backend().Defrag()
	})
	return err
}

// endAlarm ends the alarm that stops writes, if there is one and room for a write of any size.
func (e *Etcd) endAlarm(ctx context.Context) error {
	for _, alarm := range e.server.Alarms() {
		if alarm.GetAlarm() != pb.AlarmType_NOSPACE ||
			e.server.Backend().Size()+maxRequestBytes >= e.limit {
			continue
		}
		_, err := untilFault(ctx, e.faults, func() (*pb.AlarmResponse, error) {
			return e.server.Alarm(ctx, &pb.AlarmRequest{
				Action:   pb.AlarmRequest_DEACTIVATE,
				MemberID: alarm.GetMemberID(),
				Alarm:    alarm.GetAlarm(),
			})
		})
		if err != nil {
			return err
		}
	}
	return nil
}
