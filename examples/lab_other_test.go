//go:build !linux

package examples_test

import "errors"

// enterHost fails: there are no network namespaces here.
func enterHost(string) error { return errors.ErrUnsupported }
