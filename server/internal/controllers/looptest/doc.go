// Package looptest has the tests of the control loops, the scheduler and the simulated nodes that
// see them as a client does. It has no code of its own: one test binary links the control plane,
// where a binary for each loop would link it again. Tests of what is inside a loop are beside it.
//
// A test takes a namespace of the control plane that all tests share, and starts a control plane of
// its own only if it is about nodes, cluster-scoped objects, restarts, or loops that must be off.
// Names in a file begin with the name of its loop, unless several files use them.
package looptest
