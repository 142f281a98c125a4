// Package flowcontrolbootstrap makes sure that the flow schemas and priority levels exist without which API priority and fairness has
// nothing to go by.
//
//	err := flowcontrolbootstrap.Ensure(ctx, client) // at start
//	flowcontrolbootstrap.Run(ctx, client)           // as long as the server runs
//
// As kube-apiserver does (its post-start hook priority-and-fairness-config-producer), it creates what is missing at start and every minute.
// The mandatory objects are kept as they must be. The suggested ones are kept up to date as long as their annotation
// apf.kubernetes.io/autoupdate-spec says so: true hands an object over to the server, false to the operator; where it is missing, whether
// the object was ever changed decides, and the annotation is set to what was decided. Objects which are marked for updates but that
// nobody suggests any more are deleted.
package flowcontrolbootstrap
