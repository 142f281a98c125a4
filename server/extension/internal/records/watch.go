package records

import (
	"context"
	"errors"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/apiserver/pkg/storage"
	utilflowcontrol "k8s.io/apiserver/pkg/util/flowcontrol"
)

// bookmarkInterval is how often a client that wants bookmarks gets one, as from kube-apiserver.
const bookmarkInterval = time.Minute

// buffered is how many events wait for a client. What is sent before a client stops reaches it.
const buffered = 100

// Watch implements storage.Interface.
func (s *Store) Watch(
	ctx context.Context, key string, options storage.ListOptions,
) (watch.Interface, error) {
	key, err := storage.PrepareKey(s.prefix, key, options.Recursive)
	if err != nil {
		return nil, err
	}
	since, err := s.versioner.ParseResourceVersion(options.ResourceVersion)
	if err != nil {
		return nil, err
	}
	w := &watcher{
		store: s, options: options, last: since,
		selection: selection{key, options.Recursive}, events: make(chan watch.Event, buffered),
	}
	existing, err := w.begin()
	if err != nil {
		return nil, err
	}
	utilflowcontrol.WatchInitialized(ctx)
	proxy := watch.NewProxyWatcher(w.events)
	ctx, cancel := context.WithCancel(ctx)
	go func() {
		defer close(w.events)
		defer cancel()
		if err := w.run(ctx, existing); err != nil && ctx.Err() == nil {
			w.send(ctx, watch.Event{Type: watch.Error, Object: statusOf(err)})
		}
	}()
	go func() {
		defer cancel()
		select {
		case <-proxy.StopChan():
		case <-ctx.Done():
		}
	}()
	return proxy, nil
}

func statusOf(err error) runtime.Object {
	var status apierrors.APIStatus
	if !errors.As(err, &status) {
		status = apierrors.NewInternalError(err)
	}
	s := status.Status()
	return &s
}

// watcher sends the changes of objects to one client. It reads them from the history, so a slow
// client costs nothing until it is too far behind.
type watcher struct {
	store     *Store
	selection selection
	options   storage.ListOptions
	last      uint64 // the last version that the client has seen
	events    chan watch.Event
}

// begin returns the objects with which the client begins, and sets last.
func (w *watcher) begin() ([]record, error) {
	initial := w.last == 0
	if w.options.SendInitialEvents != nil {
		initial = *w.options.SendInitialEvents
	}
	if !initial && w.last > 0 {
		return nil, nil // run says if the client has to list again, as an event
	}
	existing, version, err := w.store.history.at(w.selection, 0)
	if err != nil {
		return nil, err
	}
	if w.last > version {
		return nil, storage.NewTooLargeResourceVersionError(w.last, version, 0)
	}
	w.last = version
	if !initial {
		return nil, nil
	}
	return existing, nil
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
		obj, err := w.object(r)
		if err != nil {
			return err
		}
		if obj != nil {
			w.send(ctx, watch.Event{Type: watch.Added, Object: obj})
		}
	}
	if o := w.options; o.SendInitialEvents != nil && *o.SendInitialEvents &&
		o.Predicate.AllowWatchBookmarks {
		if err := w.bookmark(ctx, true); err != nil {
			return err
		}
	}
	var tick <-chan time.Time
	if w.options.Predicate.AllowWatchBookmarks || w.options.ProgressNotify {
		ticker := time.NewTicker(bookmarkInterval)
		defer ticker.Stop()
		tick = ticker.C
	}
	for ctx.Err() == nil {
		changes, version, more, err := w.store.history.since(w.last)
		if err != nil {
			return err
		}
		if w.last > version {
			// The client has it from before a restart, when the clock was ahead.
			return errExpired
		}
		for _, c := range changes {
			if !w.selection.has(c.key) {
				continue
			}
			if err := w.sendChange(ctx, c); err != nil {
				return err
			}
		}
		w.last = version
		select {
		case <-more:
		case <-tick:
			if err := w.bookmark(ctx, false); err != nil {
				return err
			}
		case <-ctx.Done():
		}
	}
	return nil
}

// bookmark tells the client which version it has seen, and with end, that the initial objects are
// complete.
func (w *watcher) bookmark(ctx context.Context, end bool) error {
	obj := w.store.newObject()
	if err := w.store.versioner.UpdateObject(obj, w.last); err != nil {
		return err
	}
	if end {
		if err := storage.AnnotateInitialEventsEndBookmark(obj); err != nil {
			return err
		}
	}
	w.send(ctx, watch.Event{Type: watch.Bookmark, Object: obj})
	return nil
}

// sendChange sends a change as the client sees it: an object that starts or stops matching the
// client's selectors is added or deleted.
func (w *watcher) sendChange(ctx context.Context, c change) error {
	// The object of a deletion has the version of the deletion.
	c.before.version = c.version
	before, err := w.object(c.before)
	if err != nil {
		return err
	}
	now, err := w.object(c.now)
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

// object decodes a record. It returns nil if the record has no data or the object does not match
// the client's selectors.
func (w *watcher) object(r record) (runtime.Object, error) {
	if r.data == nil {
		return nil, nil
	}
	obj := w.store.newObject()
	if err := w.store.decode(r, obj); err != nil {
		return nil, err
	}
	if ok, err := w.options.Predicate.Matches(obj); err != nil || !ok {
		return nil, err
	}
	return obj, nil
}
