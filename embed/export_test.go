package embed

// SweepTempDirs is the cleanup that TempDir runs in the background.
var SweepTempDirs = sweepTempDirs
