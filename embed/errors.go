package embed

import "errors"

// Causes that a caller may want to tell apart with [errors.Is].
var (
	// ErrLocked says that another process, or another member of this one, uses the data directory.
	ErrLocked = errors.New("data directory is in use")
	// ErrCorrupt says that the data can't be read as what an etcd wrote.
	ErrCorrupt = errors.New("data is damaged")
	// ErrForeign says that no etcd wrote what the directory holds.
	ErrForeign = errors.New("directory holds something else")
	// ErrNewerVersion says that a newer etcd wrote the data.
	ErrNewerVersion = errors.New("data was written by a newer etcd")
	// ErrCluster says that the data belongs to a member of a cluster, which can't run alone.
	ErrCluster = errors.New("data belongs to a cluster of several members")
)

// Error is a failure that a person can do something about.
type Error struct {
	// Op is what was being done, with the directory or file that it was done to.
	Op string
	// Err is the cause.
	Err error
	// Hint says what to do, in a short clause.
	Hint string
}

// Error puts all three in one line.
func (e *Error) Error() string {
	s := e.Op + ": " + e.Err.Error()
	if e.Hint != "" {
		s += " (" + e.Hint + ")"
	}
	return s
}

// Unwrap returns the cause.
func (e *Error) Unwrap() error { return e.Err }
