// Package scheduling declares the group scheduling.k8s.io: priority classes.
package scheduling
