// Package admissionregistration declares the kinds of admissionregistration.k8s.io: webhook configurations, admission policies written in
// CEL, and their bindings.
//
// Expressions are compiled when an object is written, with the environment of the admission plugins that will evaluate them. An expression
// that is in etcd already is compiled with the wider environment of stored expressions, so that a rollback of the server does not make
// stored policies unchangeable.
package admissionregistration
