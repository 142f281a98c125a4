// Package flowcontrol declares the kinds of flowcontrol.apiserver.k8s.io: the configuration of API
// priority and fairness.
//
// The server falls back to the mandatory objects, two flow schemas and two priority levels called
// exempt and catch-all. Their specs are fixed.
package flowcontrol
