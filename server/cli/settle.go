package cli

import "runtime/debug"

// settle gives back the memory that only the start needed: a sandbox is idle for most of its life.
func settle() {
	debug.FreeOSMemory()
	pageOutExecutable()
}
