package server

import (
	"bytes"
	"context"
	"os"
	"time"

	utilruntime "k8s.io/apimachinery/pkg/util/runtime"
	"k8s.io/apiserver/pkg/util/filesystem"
)

// reloadInterval is how often a file is read even if the system reports no change of it.
const reloadInterval = time.Minute

// follow calls use with the content of a file whenever it changes. Content that use refuses is
// logged, and what was there before stays.
func (t *tasks) follow(file string, last []byte, use func(context.Context, []byte) error) {
	report := func(err error) {
		utilruntime.HandleErrorWithContext(t.ctx, err, "A changed file is not used", "file", file)
	}
	t.run(func() {
		filesystem.WatchUntil(t.ctx, reloadInterval, file, func() {
			data, err := os.ReadFile(file)
			switch {
			case err != nil:
				report(err)
				return
			case bytes.Equal(data, last) || len(data) == 0: // it may be about to be written
				return
			}
			last = data
			if err := use(t.ctx, data); err != nil {
				report(err)
			}
		}, report)
	})
}
