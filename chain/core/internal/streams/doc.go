// Package streams speaks a kubelet's streaming protocols, for pods that no kubelet runs: exec and
// attach over SPDY and websockets, and the forwarding of ports over SPDY, over SPDY in websockets
// and over websockets alone.
package streams
