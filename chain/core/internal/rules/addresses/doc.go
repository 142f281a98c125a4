// Package addresses validates IP addresses, address blocks and port protocols.
package addresses
