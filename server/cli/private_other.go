//go:build !unix

package cli

import "io/fs"

// checkPrivate lets everything pass: permission bits say nothing here, and who may write is said by access control lists, which Go does
// not read. What a file may hold is judged nevertheless.
func checkPrivate(fs.FileInfo, int) error { return nil }
