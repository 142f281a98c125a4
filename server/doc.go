// Package server is a Kubernetes control plane as a value: embedded etcd, and the aggregator, the core-like server and the server of
// custom resources chained as in kube-apiserver, in this process.
//
//	s, err := server.New(server.Options{})
//	if err != nil {
//		return err
//	}
//	if err := s.Start(ctx); err != nil {
//		return err
//	}
//	defer s.Stop(context.Background())
//	client, err := kubernetes.NewForConfig(s.RESTConfig())
//
// In a test, [github.com/kinproc/kinproc/server/servertest.Run] does all of that.
//
// # Life cycle
//
// [New] checks the options. [Server.Start] returns when the control plane is ready, or after undoing everything; its context bounds the
// start only. [Server.Stop] may be called at any time and more than once; it waits until no goroutine, port, file or lock is left.
// [Server.Failed] is closed when the control plane cannot go on by itself. Several control planes live in one process without seeing
// each other; they share the process's feature gates, log and metrics, as the Kubernetes libraries do.
//
// # Defaults
//
// The zero [Options] keep nothing: etcd is in a temporary directory and does not wait for the disk. With Options.DataDir a write that
// was acknowledged survives the death of the process and of the machine. Access is as in kube-apiserver: TLS only, RBAC, anonymous
// users see next to nothing. [Server.RESTConfig] is an administrator's, [Server.User] makes others.
package server
