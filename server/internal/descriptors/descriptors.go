// Package descriptors keeps some of the files that a process may have open for those who clean up.
package descriptors

import (
	"fmt"
	"os"
	"sync"
)

const (
	// needed is how many descriptors must be free. A start takes about as many before it fails for
	// another reason than too few of them.
	needed = 24
	// reserved is how many are kept. To remove a directory takes one for each level.
	reserved = 8
)

// Reserve keeps file descriptors until release is called, which may happen more than once. A start
// that fails because the process may open no more files can then remove what it has made. If few
// are free at all, Reserve returns an error, and the start should not begin.
func Reserve() (release func(), err error) {
	var files []*os.File
	closeTo := func(n int) {
		for _, f := range files[n:] {
			f.Close()
		}
		files = files[:n]
	}
	for range needed {
		f, err := os.Open(os.DevNull)
		if err != nil {
			closeTo(0)
			return nil, fmt.Errorf("this process may not open enough files: %w; raise the limit, such as "+
				"with ulimit -n 1024", err)
		}
		files = append(files, f)
	}
	closeTo(reserved)
	return sync.OnceFunc(func() { closeTo(0) }), nil
}
