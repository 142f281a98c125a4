package etcdstore

import (
	"context"
	"testing"
	"testing/synctest"

	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"github.com/kinproc/kinproc/chain/internal/writers"
)

// busyDatabase is full, and something is written whenever room is made in it.
type busyDatabase struct {
	quota *quota
	made  int
}

func (d *busyDatabase) Room() Room {
	return Room{Quota: 16 << 20, Limit: 32 << 20, File: 16 << 20, Used: 16 << 20}
}
func (d *busyDatabase) Shrink(context.Context) error { return nil }

func (d *busyDatabase) MakeRoom(context.Context) (int64, error) {
	d.made++
	if d.made == 100 {
		d.quota.cancel()
	}
	d.quota.wrote(1)
	return 0, nil
}

// A write for which there is no room is refused, although others go on writing.
func TestFullWhileOthersWrite(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		d := &busyDatabase{}
		d.quota = &quota{writers: &writers.Memory{}, database: d, changed: true}
		d.quota.ctx, d.quota.cancel = context.WithCancel(t.Context())
		defer d.quota.stop()
		for range 3 {
			before := d.made
			err := d.quota.admit(t.Context(), make([]byte, 1<<20), 0)
			if apierrors.ReasonForError(err) != statusStorageError {
				t.Errorf("a write to a full database: %v", err)
			}
			if made := d.made - before; made > 2 {
				t.Errorf("room was made %d times for one write", made)
			}
		}
	})
}
