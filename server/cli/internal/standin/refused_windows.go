package standin

import (
	"errors"

	"golang.org/x/sys/windows"
)

// refusedConnection reports whether nothing listened at the address.
func refusedConnection(err error) bool { return errors.Is(err, windows.WSAECONNREFUSED) }
