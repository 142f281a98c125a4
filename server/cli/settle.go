package cli

import (
	"runtime/debug"
	"time"
)

// settleAfter is when nothing of the start goes on any more.
const settleAfter = time.Second

// settle gives back the memory that only the start needed: a sandbox is idle for most of its life.
func settle() {
	debug.FreeOSMemory()
	pageOutExecutable()
}
