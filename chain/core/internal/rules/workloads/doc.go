// Package workloads validates what workloads have in common: pod templates, replica counts and
// percentages.
package workloads
