// Package rbac declares the kinds of rbac.authorization.k8s.io. Whoever writes a role or a binding cannot thereby grant more than they
// hold themselves, unless they may escalate or bind.
package rbac
