package server

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"
)

// errDamage says that the start needs objects that cannot be decoded.
var errDamage = errors.New("stored objects cannot be decoded")

const (
	// damageGrace is how long a start goes on once others read too, whose damage may be none of its concern.
	damageGrace = 3 * time.Second
	// damageTimeout bounds the search for the keys of damaged objects.
	damageTimeout = 2 * time.Second
	// damageNamed is how many of them are named.
	damageNamed = 5
)

// untilDamage makes a context that also ends when an object is met that cannot be decoded. It is for what reads before anybody else does:
// what it meets, the start needs, and would ask for again and again.
func (p *plane) untilDamage(parent context.Context) (context.Context, context.CancelFunc) {
	ctx, cancel := context.WithCancelCause(parent)
	p.tasks.run(func() {
		select {
		case <-p.storage.Undecodable():
			cancel(errDamage)
		case <-ctx.Done():
		}
	})
	return ctx, func() { cancel(nil) }
}

// damaged reports whether an object was met that cannot be decoded.
func (p *plane) damaged() bool {
	select {
	case <-p.storage.Undecodable():
		return true
	default:
		return false
	}
}

// nameDamage adds to the error of a start the keys of the objects that cannot be decoded, if there are any.
func (p *plane) nameDamage(ctx context.Context, err error) error {
	if !p.damaged() {
		return err
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), damageTimeout)
	defer cancel()
	damaged, findErr := p.storage.Damaged(ctx)
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
	named := fmt.Errorf("%w: %s; restore a copy of the data, or delete these keys with etcdctl", errDamage, strings.Join(keys, ", "))
	if errors.Is(err, errDamage) {
		return named // the rest is only who met it first
	}
	return fmt.Errorf("%w; %w", err, named)
}
