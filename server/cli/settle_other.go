//go:build !linux

package cli

func pageOutExecutable() {}
