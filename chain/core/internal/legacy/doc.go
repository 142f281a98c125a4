// Package legacy declares the kinds of the core group, also called the legacy group. Its name is
// empty.
package legacy
