package server

import (
	"context"
	"fmt"
	"io"

	"github.com/kinproc/kinproc/embed"
	"github.com/kinproc/kinproc/server/internal/etcdconn"
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

// Snapshot returns the state of the running control plane. Every write that was acknowledged before
// is in it.
func (s *Server) Snapshot(ctx context.Context) (*Snapshot, error) {
	return s.up("Snapshot").snapshot(ctx)
}

func (p *plane) snapshot(ctx context.Context) (*Snapshot, error) {
	if p.encryption != nil {
		return nil, fmt.Errorf("snapshot: %w", etcdconn.ErrEncrypted)
	}
	if p.etcd.Embedded != nil {
		data, err := p.etcd.Embedded.TakeSnapshot(ctx)
		if err != nil {
			return nil, err
		}
		return &Snapshot{data: data, bootstrapped: !p.options.ReadOnly}, nil
	}
	stream, err := p.etcd.Client.Snapshot(ctx)
	if err != nil {
		return nil, fmt.Errorf("take snapshot: %w", err)
	}
	defer stream.Close()
	return ReadSnapshot(stream)
}

// begunFrom reports whether the storage has been restored from a snapshot of a ready control plane,
// which holds what a start would ensure.
func (p *plane) begunFrom() bool {
	return p.options.From != nil && p.options.From.bootstrapped
}
