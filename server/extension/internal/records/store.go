package records

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apiserver/pkg/storage"
)

// Store stores the objects of a resource.
type Store struct {
	history   *history
	codec     runtime.Codec
	prefix    string // of all keys; ends with a slash
	newObject func() runtime.Object
	versioner storage.APIObjectVersioner
}

var _ storage.Interface = &Store{}

// Open loads the objects whose keys begin with prefix.
func Open(
	ctx context.Context, p Persistence, codec runtime.Codec, prefix string,
	newObject func() runtime.Object,
) (*Store, error) {
	s := &Store{
		codec: codec, prefix: strings.TrimSuffix(prefix, "/") + "/", newObject: newObject,
	}
	var err error
	s.history, err = loadHistory(ctx, p, s.prefix, func(value []byte) error {
		return s.decode(record{data: value, version: 1}, newObject())
	})
	return s, err
}

// decode decodes a record into out.
func (s *Store) decode(r record, out runtime.Object) error {
	if err := runtime.SetZeroValue(out); err != nil {
		return err
	}
	if _, _, err := s.codec.Decode(r.data, nil, out); err != nil {
		return fmt.Errorf("decode %s: %w", r.key, err)
	}
	out.GetObjectKind().SetGroupVersionKind(schema.GroupVersionKind{}) // as from any storage
	return s.versioner.UpdateObject(out, r.version)
}

func (s *Store) encode(obj runtime.Object) ([]byte, error) {
	obj = obj.DeepCopyObject()
	if err := s.versioner.PrepareObjectForStorage(obj); err != nil {
		return nil, fmt.Errorf("prepare the object for the storage: %w", err)
	}
	return runtime.Encode(s.codec, obj)
}

// Versioner implements storage.Interface.
func (s *Store) Versioner() storage.Versioner { return s.versioner }

// Create implements storage.Interface.
func (s *Store) Create(
	ctx context.Context, key string, obj, out runtime.Object, ttl uint64,
) error {
	key, err := storage.PrepareKey(s.prefix, key, false)
	if err != nil {
		return err
	}
	if version, err := s.versioner.ObjectResourceVersion(obj); err == nil && version != 0 {
		return storage.ErrResourceVersionSetOnCreate
	}
	if err := refuseTTL(ttl); err != nil {
		return err
	}
	data, err := s.encode(obj)
	if err != nil {
		return err
	}
	r, done, err := s.history.write(ctx, key, 0, data)
	if err != nil {
		return err
	}
	if !done {
		return storage.NewKeyExistsError(key, int64(r.version))
	}
	if out == nil {
		return nil
	}
	return s.decode(r, out)
}

func refuseTTL(ttl uint64) error {
	if ttl != 0 {
		return storage.NewInternalError(errors.New(
			"this storage keeps objects until they are deleted: a kind with a time to live needs etcd"))
	}
	return nil
}

// Get implements storage.Interface.
func (s *Store) Get(
	_ context.Context, key string, options storage.GetOptions, out runtime.Object,
) error {
	key, err := storage.PrepareKey(s.prefix, key, false)
	if err != nil {
		return err
	}
	r, current := s.history.get(key)
	if err := s.reached(options.ResourceVersion, current); err != nil {
		return err
	}
	switch {
	case r.data != nil:
		return s.decode(r, out)
	case options.IgnoreNotFound:
		return runtime.SetZeroValue(out)
	default:
		return storage.NewKeyNotFoundError(key, 0)
	}
}

// reached returns an error unless the current version is at least the wanted one.
func (s *Store) reached(wanted string, current uint64) error {
	if wanted == "" {
		return nil
	}
	version, err := s.versioner.ParseResourceVersion(wanted)
	if err != nil {
		return apierrors.NewBadRequest(fmt.Sprintf("invalid resource version: %v", err))
	}
	if version > current {
		return storage.NewTooLargeResourceVersionError(version, current, 0)
	}
	return nil
}

// GetList implements storage.Interface.
func (s *Store) GetList(
	_ context.Context, key string, options storage.ListOptions, list runtime.Object,
) error {
	key, err := storage.PrepareKey(s.prefix, key, options.Recursive)
	if err != nil {
		return err
	}
	version, from, err := storage.ValidateListOptions(key, s.versioner, options)
	if err != nil {
		return err
	}
	_, current := s.history.get(key)
	if err := s.reached(options.ResourceVersion, current); err != nil {
		return err
	}
	if version < 0 { // a continued list that need not be consistent
		version = 0
	}
	if uint64(version) > current {
		return storage.NewTooLargeResourceVersionError(uint64(version), current, 0)
	}
	found, at, err := s.history.at(selection{key, options.Recursive}, uint64(version))
	if err != nil {
		return s.expired(err, key, from, options)
	}
	items, last, left, err := s.page(found, from, options.Predicate)
	if err != nil {
		return err
	}
	if err := meta.SetList(list, items); err != nil {
		return err
	}
	token, remaining, err := storage.PrepareContinueToken(last, key, int64(at),
		int64(left)+options.Predicate.Limit, left > 0, options)
	if err != nil {
		return err
	}
	return s.versioner.UpdateList(list, at, token, remaining)
}

// page returns the objects that match from a key on, up to the limit, the last key that was looked
// at, and the number of records after that.
func (s *Store) page(
	found []record, from string, p storage.SelectionPredicate,
) (items []runtime.Object, last string, left int, err error) {
	for i, r := range found {
		if r.key < from {
			continue
		}
		if p.Limit > 0 && int64(len(items)) == p.Limit {
			return items, last, len(found) - i, nil
		}
		last = r.key
		obj := s.newObject()
		if err := s.decode(r, obj); err != nil {
			return nil, "", 0, err
		}
		matches, err := p.Matches(obj)
		if err != nil {
			return nil, "", 0, err
		}
		if matches {
			items = append(items, obj)
		}
	}
	return items, last, 0, nil
}

// expired returns err with a token to continue the list nevertheless, as of now.
func (s *Store) expired(err error, key, from string, options storage.ListOptions) error {
	if options.Predicate.Continue == "" || !errors.Is(err, errExpired) {
		return err
	}
	token, failed := storage.EncodeContinue(from, key, -1)
	if failed != nil {
		return err
	}
	renewed := apierrors.NewResourceExpired(
		"The provided continue parameter is too old to display a consistent list result. " +
			"Start a new list, or continue with the given token and get the newest objects.")
	renewed.ErrStatus.ListMeta = metav1.ListMeta{Continue: token}
	return renewed
}

// GuaranteedUpdate implements storage.Interface.
func (s *Store) GuaranteedUpdate(
	ctx context.Context, key string, out runtime.Object, ignoreNotFound bool,
	preconditions *storage.Preconditions, try storage.UpdateFunc, _ runtime.Object,
) error {
	key, err := storage.PrepareKey(s.prefix, key, false)
	if err != nil {
		return err
	}
	for ctx.Err() == nil {
		before, _ := s.history.get(key)
		existing := s.newObject()
		if before.data != nil {
			if err := s.decode(before, existing); err != nil {
				return err
			}
		} else if !ignoreNotFound {
			return storage.NewKeyNotFoundError(key, 0)
		}
		if err := preconditions.Check(key, existing); err != nil {
			return err
		}
		updated, ttl, err := try(existing, storage.ResponseMeta{ResourceVersion: before.version})
		if err != nil {
			return err
		}
		if ttl != nil {
			if err := refuseTTL(*ttl); err != nil {
				return err
			}
		}
		data, err := s.encode(updated)
		if err != nil {
			return err
		}
		if before.data != nil && bytes.Equal(data, before.data) {
			if now, _ := s.history.get(key); now.version == before.version {
				return s.decode(before, out)
			}
			continue
		}
		now, done, err := s.history.write(ctx, key, before.version, data)
		if err != nil {
			return err
		}
		if done {
			return s.decode(now, out)
		}
	}
	return ctx.Err()
}

// Delete implements storage.Interface.
func (s *Store) Delete(
	ctx context.Context, key string, out runtime.Object, preconditions *storage.Preconditions,
	validate storage.ValidateObjectFunc, _ runtime.Object, _ storage.DeleteOptions,
) error {
	key, err := storage.PrepareKey(s.prefix, key, false)
	if err != nil {
		return err
	}
	for ctx.Err() == nil {
		before, _ := s.history.get(key)
		if before.data == nil {
			return storage.NewKeyNotFoundError(key, 0)
		}
		existing := s.newObject()
		if err := s.decode(before, existing); err != nil {
			return err
		}
		if err := preconditions.Check(key, existing); err != nil {
			return err
		}
		if err := validate(ctx, existing); err != nil {
			return err
		}
		now, done, err := s.history.write(ctx, key, before.version, nil)
		if err != nil {
			return err
		}
		if done {
			before.version = now.version
			return s.decode(before, out)
		}
	}
	return ctx.Err()
}

// Stats implements storage.Interface.
func (s *Store) Stats(context.Context) (storage.Stats, error) {
	found, _, err := s.history.at(selection{s.prefix, true}, 0)
	if err != nil || len(found) == 0 {
		return storage.Stats{}, err
	}
	size := 0
	for _, r := range found {
		size += len(r.data)
	}
	return storage.Stats{
		ObjectCount:                     int64(len(found)),
		EstimatedAverageObjectSizeBytes: int64(size / len(found)),
	}, nil
}

// GetCurrentResourceVersion implements storage.Interface.
func (s *Store) GetCurrentResourceVersion(context.Context) (uint64, error) {
	_, version := s.history.get("")
	return version, nil
}

// ReadinessCheck implements storage.Interface.
func (s *Store) ReadinessCheck() error { return nil }

// RequestWatchProgress implements storage.Interface. Only watch caches use it.
func (s *Store) RequestWatchProgress(context.Context) error { return nil }

// EnableResourceSizeEstimation implements storage.Interface. The sizes are known.
func (s *Store) EnableResourceSizeEstimation(storage.KeysFunc) error { return nil }

// CompactRevision implements storage.Interface. Only watch caches use it.
func (s *Store) CompactRevision() int64 { return 0 }
