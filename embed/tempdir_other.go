//go:build !unix

package embed

import "io/fs"

// privateToUser returns true: on these platforms every user has a private directory for temporary
// files, and permission bits are meaningless.
func privateToUser(fs.FileInfo) bool { return true }
