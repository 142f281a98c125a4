// Package trace defines the protocol of request traces. A trace shows one request's path through
// the chain: which user was authenticated, what each server decided, what admission changed, what
// was read from etcd and written to it. Plugins and webhooks appear only if they had a say.
//
// A client sets the request header [Header] to any value, and gets the trace in the trailer of the
// same name: a JSON array of [Step]. The user must be allowed to get the non-resource URL [Path].
// Those who may get [FollowPath] can follow the requests of all clients. If nobody asks, no trace
// is recorded.
package trace

import (
	"encoding/json"
	"time"
)

const (
	// Header is the request header that asks for a trace, and the trailer that holds the trace.
	Header = "Kinproc-Trace"
	// Objects is the value of the request header that asks for the object after each step, too.
	Objects = "objects"
	// Path is the non-resource URL that a user must be allowed to get in order to see traces. No
	// server serves it.
	Path = "/kinproc/v1/trace"
)

// Step is what happened to the request at one place.
type Step struct {
	// At is the place: "authentication", "flow control", "authorization", the name of a server of
	// the chain, or what a server does: "body", "decoding", "patching", "mutating admission",
	// "webhook", "strategy", "validation", "validating admission", "storage encoding", "etcd",
	// "storage decoding" and "encoding". For a request to another server, "connection", "TLS" and
	// "response".
	At string `json:"at"`
	// Decision is what the place decided, such as "allowed", "delegated" or "served".
	Decision string `json:"decision"`
	// Reason explains the decision. It is empty where the decision needs no explanation.
	Reason string `json:"reason,omitempty"`
	// Patch is what the place changed in the object, as a JSON patch (RFC 6902). It is empty in
	// traces over HTTP/1.1, and for objects that hold secrets: Secrets, token requests and token
	// reviews.
	Patch json.RawMessage `json:"patch,omitempty"`
	// Object is the object as the place left it, if the place changed it and the client asked for
	// objects. It is empty where Patch is.
	Object json.RawMessage `json:"object,omitempty"`
	// Start is the time between the request's arrival at the server and its arrival at this place.
	// In JSON, it is in nanoseconds.
	Start time.Duration `json:"start"`
	// Took is how long the request stayed, including the time at places that it was delegated to.
	// In JSON, it is in nanoseconds.
	Took time.Duration `json:"took"`
}
