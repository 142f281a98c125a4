// Package dashboard has no code: its test opens the dashboard of kinproc in a real browser, and
// takes the pictures of the documentation.
package dashboard
