package cli

import "runtime/debug"

// settle returns memory that only the start needed, because a sandbox is idle most of the time.
func settle() {
	debug.FreeOSMemory()
	pageOutExecutable()
}
