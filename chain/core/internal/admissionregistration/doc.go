// Package admissionregistration declares the kinds of admissionregistration.k8s.io: webhook
// configurations, admission policies written in CEL, and policy bindings.
//
// Expressions are compiled when an object is written, in the CEL environment of the admission
// plugins that will evaluate them. Expressions that are already stored are compiled in the wider
// environment for stored expressions, so that stored policies can still be updated after the server
// is rolled back.
package admissionregistration
