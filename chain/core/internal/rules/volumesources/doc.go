// Package volumesources validates the volume sources that pods and persistent volumes share.
package volumesources
