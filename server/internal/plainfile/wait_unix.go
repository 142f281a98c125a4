//go:build unix

package plainfile

import "syscall"

// dontWait lets a named pipe be opened though nobody writes to it.
const dontWait = syscall.O_NONBLOCK
