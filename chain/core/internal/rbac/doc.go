// Package rbac declares the kinds of rbac.authorization.k8s.io. By writing a role or a binding,
// users cannot grant more permissions than they hold themselves, unless they may escalate or bind.
package rbac
