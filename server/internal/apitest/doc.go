// Package apitest has the tests that see a control plane through its API: admission, authorization,
// the aggregator, traces, the dashboard, resets and forks, what every control plane has, and the
// responses to requests of all kinds. It has no code of its own: one test binary links the control
// plane, where a binary for each part would link it again. Tests of what is inside a part are
// beside it.
//
// A test takes a namespace of the control plane that all tests share, and starts a control plane of
// its own only if it needs other options, changes what other tests would see, or stops it. Names in
// a file begin with what the file is about, unless several files use them.
package apitest
