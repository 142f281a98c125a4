// Package resource declares the kinds of resource.k8s.io: dynamic resource allocation (KEP-4381).
//
// k8s.io/api has generated validation for what it declares about its fields: lengths, uniqueness,
// formats and unions. This package calls it and adds the rules that such declarations cannot
// express.
package resource
