// Package chain links the three API servers in the order in which a request passes through them:
//
//	client → filters (authentication, authorization, priority and fairness, audit)
//	       → 1 aggregator   package chain/aggregator: APIServices, a proxy to extension API servers
//	       → 2 core         package chain/core: the built-in kinds
//	       → 3 extensions   package chain/extensions: CRDs and custom resources
//	       → 404
//
// Each server knows only the next one, as a DelegationTarget; only this package knows the order. A
// server delegates to the next one's UnprotectedHandler, behind its filters, so each request is
// authenticated, authorized and subject to flow control once.
//
// The path of a request is promised, as the example shows it, and so are the packages kind and
// trace. The names of this package and of the three servers are exported for package server only,
// and may change.
package chain
