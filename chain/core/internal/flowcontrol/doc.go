// Package flowcontrol declares the kinds of flowcontrol.apiserver.k8s.io: the configuration of API priority and fairness.
//
// Two flow schemas and two priority levels, called exempt and catch-all, are what the server falls back to: their specs are fixed.
package flowcontrol
