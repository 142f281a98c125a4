package main

import (
	"context"
	"fmt"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/apiserver/pkg/storage"
)

// Watch implements storage.Interface.
func (f *resourceFiles) Watch(
	ctx context.Context, key string, options storage.ListOptions,
) (watch.Interface, error) {
	since, err := f.Versioner().ParseResourceVersion(options.ResourceVersion)
	if err != nil {
		return nil, err
	}
	w := &watcher{files: f, key: key, options: options, last: since, events: make(chan watch.Event)}
	initial := since == 0
	if options.SendInitialEvents != nil {
		initial = *options.SendInitialEvents
	}
	var existing []record
	if initial || since == 0 {
		existing, w.last = f.find(key, options.Recursive)
	}
	if !initial {
		existing = nil
	}
	if w.last < f.first {
		return nil, apierrors.NewResourceExpired(
			fmt.Sprintf("changes since resource version %d are no longer available", since))
	}
	proxy := watch.NewProxyWatcher(w.events)
	go func() {
		defer close(w.events)
		ctx, cancel := context.WithCancel(ctx)
		defer cancel()
		go func() {
			select {
			case <-proxy.StopChan():
				cancel()
			case <-ctx.Done():
			}
		}()
		if err := w.run(ctx, existing); err != nil && ctx.Err() == nil {
			status := apierrors.NewInternalError(err).Status()
			w.send(ctx, watch.Event{Type: watch.Error, Object: &status})
		}
	}()
	return proxy, nil
}

// watcher sends the changes of objects to one client.
type watcher struct {
	files   *resourceFiles
	key     string
	options storage.ListOptions
	last    uint64 // the last resource version that the client has seen
	events  chan watch.Event
}

func (w *watcher) send(ctx context.Context, e watch.Event) {
	select {
	case w.events <- e:
	case <-ctx.Done():
	}
}

// run sends the existing objects and then all changes until ctx is done.
func (w *watcher) run(ctx context.Context, existing []record) error {
	for _, r := range existing {
		obj, err := w.object(r.data, r.version)
		if err != nil {
			return err
		}
		if obj != nil {
			w.send(ctx, watch.Event{Type: watch.Added, Object: obj})
		}
	}
	if w.options.SendInitialEvents != nil && *w.options.SendInitialEvents &&
		w.options.Predicate.AllowWatchBookmarks {
		bookmark := w.files.newObject()
		if err := w.files.Versioner().UpdateObject(bookmark, w.last); err != nil {
			return err
		}
		if err := storage.AnnotateInitialEventsEndBookmark(bookmark); err != nil {
			return err
		}
		w.send(ctx, watch.Event{Type: watch.Bookmark, Object: bookmark})
	}
	for ctx.Err() == nil {
		changes, more := w.next()
		for _, c := range changes {
			if err := w.sendChange(ctx, c); err != nil {
				return err
			}
		}
		select {
		case <-more:
		case <-ctx.Done():
		}
	}
	return nil
}

// next returns the changes that the client has not seen, and a channel that is closed when there
// are more.
func (w *watcher) next() ([]change, <-chan struct{}) {
	f := w.files
	f.mu.Lock()
	defer f.mu.Unlock()
	var changes []change
	for _, c := range f.history[min(uint64(len(f.history)), w.last-f.first):] {
		if within(c.key, w.key, w.options.Recursive) {
			changes = append(changes, c)
		}
	}
	w.last = f.version
	return changes, f.changed
}

// sendChange sends a change as the client sees it: an object that starts or stops matching the
// client's selectors is added or deleted.
func (w *watcher) sendChange(ctx context.Context, c change) error {
	before, err := w.object(c.before, c.version)
	if err != nil {
		return err
	}
	now, err := w.object(c.now, c.version)
	if err != nil {
		return err
	}
	switch {
	case before == nil && now != nil:
		w.send(ctx, watch.Event{Type: watch.Added, Object: now})
	case before != nil && now != nil:
		w.send(ctx, watch.Event{Type: watch.Modified, Object: now})
	case before != nil:
		w.send(ctx, watch.Event{Type: watch.Deleted, Object: before})
	}
	return nil
}

// object decodes data. It returns nil if data is nil or the object does not match the client's
// selectors.
func (w *watcher) object(data []byte, version uint64) (runtime.Object, error) {
	if data == nil {
		return nil, nil
	}
	obj := w.files.newObject()
	if err := w.files.decode(record{data, version}, obj); err != nil {
		return nil, err
	}
	if ok, err := w.options.Predicate.Matches(obj); err != nil || !ok {
		return nil, err
	}
	return obj, nil
}
