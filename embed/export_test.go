package embed

// SweepTempDirs is what TempDir does in the background.
var SweepTempDirs = sweepTempDirs
