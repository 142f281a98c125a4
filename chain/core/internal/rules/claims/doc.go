// Package claims validates specs of persistent volume claims, also those in templates.
package claims
