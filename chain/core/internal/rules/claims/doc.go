// Package claims validates the specs of persistent volume claims and claim templates.
package claims
