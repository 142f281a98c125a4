// Package records stores the objects of an extension API server in memory, with the history that
// watches need. A [Persistence] keeps them beyond the life of the process. [Files] is one.
package records
