// Package history keeps the versions of pod templates, as ControllerRevisions or as hashes.
package history
