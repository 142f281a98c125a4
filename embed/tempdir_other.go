//go:build !unix

package embed

import "io/fs"

// privateToUser is true: the directory for temporary files is each user's own here, and permission
// bits say nothing.
func privateToUser(fs.FileInfo) bool { return true }
