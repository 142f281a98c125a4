// Package rbacauthorizer authorizes requests based on roles and bindings, and creates the roles and
// bindings that every cluster starts with.
//
//	a := rbacauthorizer.New(rbacauthorizer.FromInformers(factory, rbacauthorizer.FromClient(client)))
//	decision, reason, err := a.Authorize(ctx, attributes)
//
// Rules can only allow requests. A request that no rule allows is left to the next authorizer.
package rbacauthorizer
