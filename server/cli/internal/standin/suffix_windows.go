package standin

// suffix is the suffix of executables.
const suffix = ".exe"
