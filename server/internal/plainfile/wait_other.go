//go:build !unix

package plainfile

// dontWait is nothing here: there are no named pipes among files.
const dontWait = 0
