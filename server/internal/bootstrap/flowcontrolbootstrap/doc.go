// Package flowcontrolbootstrap ensures that the flow schemas and priority levels exist that API
// Priority and Fairness needs.
//
//	err := flowcontrolbootstrap.Ensure(ctx, client) // at start, and then once in a Period
//
// Like kube-apiserver's post-start hook priority-and-fairness-config-producer, it creates missing
// objects at start and every minute. Mandatory objects are always reset to their required state.
// Suggested objects are updated if their annotation apf.kubernetes.io/autoupdate-spec is true, and
// are left to the operator if it is false. If it is missing or invalid, an object is updated only
// if it was never changed, and the annotation is set accordingly. Objects that are marked for
// updates but are no longer suggested are deleted.
package flowcontrolbootstrap
