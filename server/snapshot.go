package server

import (
	"context"
	"io"

	"github.com/kinproc/kinproc/embed"
)

// Snapshot is the state of a control plane at one revision: all objects, but no keys and no
// certificates. It does not change. Several control planes may begin with it (see [Options.From]),
// also at the same time, and share its memory.
type Snapshot struct {
	data *embed.Snapshot
	// bootstrapped is true if the snapshot was taken from a ready control plane of this process, so
	// that it holds what a start ensures.
	bootstrapped bool
}

// ReadSnapshot reads a snapshot that [Snapshot.WriteTo] or etcdctl snapshot save wrote, whether
// from kinproc or from a real cluster. It reads all of r and checks the data. The error says what
// is wrong with it; it wraps [embed.ErrCorrupt] if r is not a whole snapshot.
func ReadSnapshot(r io.Reader) (*Snapshot, error) {
	data, err := embed.ReadSnapshot(r)
	if err != nil {
		return nil, err
	}
	return &Snapshot{data: data}, nil
}

// WriteTo writes the snapshot in etcd's format, which etcdutl reads too. Secrets are in it in plain
// text.
func (s *Snapshot) WriteTo(w io.Writer) (int64, error) { return s.data.WriteTo(w) }

// At returns the state at an earlier revision, which is the resourceVersion of an object that was
// written then. The error wraps [mvcc.ErrCompacted] of etcd if that revision was not kept, and
// [mvcc.ErrFutureRev] if the snapshot is older.
func (s *Snapshot) At(revision int64) (*Snapshot, error) {
	data, err := s.data.At(revision)
	if err != nil {
		return nil, err
	}
	return &Snapshot{data: data}, nil
}

// Snapshot returns the state of the running control plane. Every write that was acknowledged before
// is in it.
func (s *Server) Snapshot(ctx context.Context) (*Snapshot, error) {
	data, err := up(s, "Snapshot").control.Snapshot(ctx)
	if err != nil {
		return nil, err
	}
	return &Snapshot{data: data, bootstrapped: !s.options.ReadOnly && !s.options.sharesEtcd()}, nil
}

// Reset makes the objects of the running control plane those of a snapshot, which may come from
// another one. It writes the difference in one transaction, so that a process that is killed
// meanwhile leaves either the old state or the new one. Objects that do not differ keep their
// resource versions; the others get a new, higher one. Watches get the difference as ordinary
// events, or 410 Gone if they cannot. Keys, certificates and what describes this control plane
// itself stay.
//
// Requests that begin during the reset wait for its end. Whatever begins after Reset returns sees
// only the new state. The control loops of this control plane forget what they were about to do.
//
// If ctx ends early, Reset returns an error, and nothing has changed unless the error says so. If
// the server does not show a CRD of the snapshot within ten seconds, Reset stops waiting for
// it, and the error names it.
func (s *Server) Reset(ctx context.Context, to *Snapshot) error {
	return up(s, "Reset").control.Reset(ctx, to.data)
}
