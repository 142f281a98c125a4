package etcdconn

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/kinproc/kinproc/chain"
	"github.com/kinproc/kinproc/server/internal/stopper"
)

// ErrDamage reports that the start needs objects that cannot be decoded.
var ErrDamage = errors.New("stored objects cannot be decoded")

const (
	// DamageGrace is how long a start continues after an undecodable object is found while other
	// components read too, because the object may be irrelevant to the start.
	DamageGrace = 3 * time.Second
	// damageTimeout bounds the search for the keys of damaged objects.
	damageTimeout = 2 * time.Second
	// damageNamed is the maximum number of damaged objects that an error lists.
	damageNamed = 5
)

// UntilDamage returns a context that also ends when an undecodable object is found. It is for the
// reads before any other component reads: the start needs all the objects that they return, and
// would retry them forever.
func UntilDamage(
	parent context.Context, storage *chain.Storage, s *stopper.Stopper,
) (context.Context, context.CancelFunc) {
	ctx, cancel := context.WithCancelCause(parent)
	s.Go(func() {
		select {
		case <-storage.Undecodable():
			cancel(ErrDamage)
		case <-ctx.Done():
		}
	})
	return ctx, func() { cancel(nil) }
}

// IsDamaged reports whether an undecodable object was found.
func IsDamaged(storage *chain.Storage) bool {
	select {
	case <-storage.Undecodable():
		return true
	default:
		return false
	}
}

// NameDamage adds the keys of the undecodable objects, if there are any, to the error of a start.
func NameDamage(ctx context.Context, storage *chain.Storage, err error) error {
	if !IsDamaged(storage) {
		return err
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), damageTimeout)
	defer cancel()
	damaged, findErr := storage.Damaged(ctx)
	if findErr != nil {
		return errors.Join(err, findErr)
	}
	if len(damaged) == 0 {
		return err
	}
	var keys []string
	for i, d := range damaged {
		if i == damageNamed {
			keys = append(keys, fmt.Sprintf("and %d more", len(damaged)-i))
			break
		}
		reason, _, _ := strings.Cut(d.Err.Error(), "\n")
		keys = append(keys, fmt.Sprintf("%s (%s)", d.Key, reason))
	}
	named := fmt.Errorf("%w: %s; restore a copy of the data, or delete these keys with etcdctl",
		ErrDamage, strings.Join(keys, ", "))
	if errors.Is(err, ErrDamage) {
		return named // err adds nothing but where the object was read first
	}
	return fmt.Errorf("%w; %w", err, named)
}
