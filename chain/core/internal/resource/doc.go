// Package resource declares the kinds of resource.k8s.io: dynamic resource allocation (KEP-4381).
//
// What k8s.io/api declares about its fields (lengths, uniqueness, formats, unions) is checked by the validation that is generated from it;
// here is what such declarations cannot say.
package resource
