// Package patches bounds how much JSON patches copy.
package patches

import (
	"math"
	"sync"

	jsonpatch "gopkg.in/evanphx/json-patch.v4"
	genericapiserver "k8s.io/apiserver/pkg/server"
)

// limited is done once the process has a limit.
var limited sync.Once

// Limit sets the limit of what the copies of a JSON patch may take, in the first call of a process.
// It must be called with the configuration of each API server. The limit is a variable of the
// process, which the library would write again for each new server, while others read it. It leaves
// it alone for a server that allows more.
func Limit(c *genericapiserver.Config) {
	limited.Do(func() { jsonpatch.AccumulatedCopySizeLimit = c.JSONPatchMaxCopyBytes })
	c.JSONPatchMaxCopyBytes = math.MaxInt64
}
