// Package chain links the three API servers in the order in which a request meets them:
//
//	client → filters (authentication, authorization, priority and fairness, audit)
//	       → 1 aggregator   package chain/aggregator: APIServices, a proxy to extension API servers
//	       → 2 core         package chain/core: the built-in kinds
//	       → 3 extensions   package chain/extensions: CRDs and custom resources
//	       → 404
//
// Each server knows only the next one, as a DelegationTarget; only this package knows the order. Delegation calls the next server's
// UnprotectedHandler, behind its filters, so a request is authenticated, authorized and admitted to the queue once.
package chain
