//go:build !windows

package standin

import (
	"errors"
	"syscall"
)

// refusedConnection reports whether nothing listened at the address.
func refusedConnection(err error) bool { return errors.Is(err, syscall.ECONNREFUSED) }
