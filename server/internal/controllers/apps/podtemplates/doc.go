// Package podtemplates keeps the versions of pod templates, as ControllerRevisions or as hashes.
package podtemplates
