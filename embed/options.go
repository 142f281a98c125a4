package embed

import (
	"errors"
	"fmt"

	"go.uber.org/zap"
)

// Options configures a member. Either Dir or Ephemeral must be set.
type Options struct {
	// Dir is the data directory. It is created with mode 0700 if it does not exist. Links in it are
	// rejected. The caller must make sure that other users cannot write to it. If Ephemeral is set,
	// Dir is the parent of the temporary directory, and defaults to [os.TempDir].
	Dir string

	// Ephemeral keeps the data in a temporary directory that Stop removes, and never waits for the
	// disk. If the process is killed, the directory remains until a process of the same user next
	// starts a member or calls [TempDir].
	Ephemeral bool

	// From, if set, is the data to begin with. Revisions and leases continue from there. Dir must
	// not hold etcd data yet.
	From *Snapshot

	// QuotaBytes is the size that the database should have at most. Default: [DefaultQuotaBytes].
	// Etcd itself refuses to write a little later: whoever writes keeps to the quota by asking
	// [Etcd.Room], so that there is room left for deletions. A database that is larger can be
	// opened.
	QuotaBytes int64

	// ListenClient opens a Unix socket with mode 0600 for clients outside the process, such as
	// etcdctl. If it is not set, the member can only be reached through [Etcd.Client].
	ListenClient bool

	// OnFailure, if set, is called once when the member dies on its own, with the error of
	// [Etcd.Err]. It must not call Stop, which waits for it.
	OnFailure func(error)

	// Logger receives etcd's log. If it is nil, etcd does not log. Its Fatal and Panic methods
	// never exit the process.
	Logger *zap.Logger
}

func (o Options) validate() error {
	if o.Dir == "" && !o.Ephemeral {
		return &Error{
			Op:   "start etcd",
			Err:  errors.New("no data directory"),
			Hint: "set Dir or Ephemeral",
		}
	}
	if o.QuotaBytes != 0 && (o.QuotaBytes < MinQuotaBytes || o.QuotaBytes > MaxQuotaBytes) {
		return &Error{
			Op:   "start etcd",
			Err:  fmt.Errorf("a quota of %d bytes is too small or too large", o.QuotaBytes),
			Hint: fmt.Sprintf("set QuotaBytes to a number from %d to %d", MinQuotaBytes, MaxQuotaBytes),
		}
	}
	return nil
}
