// Package portrule compares three extension API servers. See README.md.
package portrule
