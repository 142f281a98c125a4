// Package signers validates the names of certificate signers.
package signers
