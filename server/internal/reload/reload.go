// Package reload follows configuration files that may change while the control plane runs.
package reload

import (
	"bytes"
	"context"
	"os"
	"time"

	utilruntime "k8s.io/apimachinery/pkg/util/runtime"
	"k8s.io/apiserver/pkg/util/filesystem"

	"github.com/kinproc/kinproc/server/internal/stopper"
)

// interval is how often a file is read even if the system reports no change of it.
const interval = time.Minute

// Follow calls use with the content of a file whenever it changes, until s stops. Content that use
// refuses is logged, and what was there before stays.
func Follow(
	s *stopper.Stopper, file string, last []byte, use func(context.Context, []byte) error,
) {
	ctx := s.Context()
	report := func(err error) {
		utilruntime.HandleErrorWithContext(ctx, err, "Ignoring a changed file", "file", file)
	}
	s.Go(func() {
		filesystem.WatchUntil(ctx, interval, file, func() {
			data, err := os.ReadFile(file)
			switch {
			case err != nil:
				report(err)
				return
			case bytes.Equal(data, last) || len(data) == 0: // it may be about to be written
				return
			}
			last = data
			if err := use(ctx, data); err != nil {
				report(err)
			}
		}, report)
	})
}
