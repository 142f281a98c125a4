// Package signers validates names of signers of certificates.
package signers
