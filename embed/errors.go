package embed

import "errors"

// Errors that can be distinguished with [errors.Is].
var (
	// ErrLocked means that another process, or another member in this process, uses the data
	// directory.
	ErrLocked = errors.New("data directory is in use")
	// ErrCorrupt means that the data is not valid etcd data.
	ErrCorrupt = errors.New("data is damaged")
	// ErrForeign means that the directory is not empty, but holds no etcd data.
	ErrForeign = errors.New("directory contains files that are not etcd data")
	// ErrHasData means that the directory to restore a snapshot into already holds etcd data.
	ErrHasData = errors.New("the directory already contains etcd data")
	// ErrNewerVersion means that a newer etcd wrote the data.
	ErrNewerVersion = errors.New("data was written by a newer etcd")
	// ErrCluster means that the data belongs to a member of a cluster, which can't run alone.
	ErrCluster = errors.New("data belongs to a cluster of several members")
)

// Error is an error with a hint for the user on how to resolve it.
type Error struct {
	// Op is the operation that failed, including the directory or file.
	Op string
	// Err is the cause.
	Err error
	// Hint is a short clause that says what to do.
	Hint string
}

// Error returns the operation, the cause and the hint in one line.
func (e *Error) Error() string {
	s := e.Op + ": " + e.Err.Error()
	if e.Hint != "" {
		s += " (" + e.Hint + ")"
	}
	return s
}

// Unwrap returns the cause.
func (e *Error) Unwrap() error { return e.Err }
