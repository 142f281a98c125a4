package server

const (
	snapshotPath = "/snapshot"
	resetPath    = "/reset"
)
