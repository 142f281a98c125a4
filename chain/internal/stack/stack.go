// Package stack makes room on the stacks of goroutines that requests start.
//
// A goroutine begins with a small stack, which doubles several times until a request is answered.
// Each time, all that is on the stack is copied and its pointers are adjusted, which takes a tenth
// of a request's CPU time. It is cheaper to grow the stack once, while there is little on it.
package stack

import "runtime"

// enough is how much most requests need, in bytes.
const enough = 14 << 10

// Grow makes the stack of the calling goroutine as large as most requests need.
func Grow() { grow(false) }

// grow has a frame of that size, for which it makes room whether it touches the frame or not.
//
//go:noinline
func grow(touch bool) {
	if touch {
		var room [enough]byte
		runtime.KeepAlive(&room)
	}
}

// more is how much the comparison of two versions of an object needs, in bytes.
const more = 30 << 10

// GrowMore makes the stack of the calling goroutine as large as most writes need.
func GrowMore() { growMore(false) }

//go:noinline
func growMore(touch bool) {
	if touch {
		var room [more]byte
		runtime.KeepAlive(&room)
	}
}
