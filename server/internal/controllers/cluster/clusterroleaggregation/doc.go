// Package clusterroleaggregation keeps the rules of cluster roles with an aggregationRule, such as
// admin, edit and view, equal to the union of the rules of the cluster roles that they select.
//
// As in kube-controller-manager, the rules are written with server-side apply by the field manager
// [Name].
package clusterroleaggregation
