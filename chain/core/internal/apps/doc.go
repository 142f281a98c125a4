// Package apps declares the API group apps: deployments, replica sets, stateful sets, daemon sets
// and controller revisions.
package apps
