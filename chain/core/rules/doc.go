// Package rules has small rules that several kinds share, one file for each thing that is judged.
package rules
