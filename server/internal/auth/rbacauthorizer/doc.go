// Package rbac decides by roles and bindings who may do what, and brings the roles and bindings that every cluster starts with.
//
//	a := rbacauthorizer.New(rbacauthorizer.FromInformers(factory, rbacauthorizer.FromClient(client)))
//	decision, reason, err := a.Authorize(ctx, attributes)
//
// Rules only ever allow: what no rule allows is left to the next authorizer.
package rbacauthorizer
