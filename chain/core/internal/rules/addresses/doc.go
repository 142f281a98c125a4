// Package addresses validates IP addresses, address blocks and protocols of ports.
package addresses
