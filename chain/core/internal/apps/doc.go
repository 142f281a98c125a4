// Package apps declares the group apps: deployments, replica sets, stateful sets, daemon sets and controller revisions.
package apps
