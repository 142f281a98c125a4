package embed

import (
	"errors"

	"go.uber.org/zap"
)

// Options say where the data is and how much it is worth. The zero value is not usable: it has no directory.
type Options struct {
	// Dir is the data directory, made when absent (mode 0700). With Ephemeral it is where the temporary directory is made:
	// empty means the system's.
	Dir string

	// Ephemeral keeps the data in a temporary directory that Stop removes, and never waits for the disk. If the process is killed, the
	// directory stays until a process of the same user next starts a member or calls [TempDir].
	Ephemeral bool

	// ListenClient opens a unix socket, readable to the owner alone, for clients outside of the process such as etcdctl.
	// False: only Client reaches the member.
	ListenClient bool

	// Logger receives etcd's log. Nil: etcd is silent. Its Fatal and Panic never end the process.
	Logger *zap.Logger
}

func (o Options) validate() error {
	if o.Dir == "" && !o.Ephemeral {
		return &Error{Op: "start etcd", Err: errors.New("no data directory"), Hint: "set Dir or Ephemeral"}
	}
	return nil
}
