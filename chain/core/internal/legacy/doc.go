// Package core declares the kinds of the core group, one file per kind.
package legacy
