// Package server runs a Kubernetes control plane in this process: an embedded etcd and three API
// servers, chained as in kube-apiserver: the aggregator, the core-like server and the server of
// custom resources.
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
// In a test, use [github.com/kinproc/kinproc/server/servertest.Run] instead.
//
// # Life cycle
//
// [New] checks the options. [Server.Start] returns when the control plane is ready or, if that
// fails, after it has cleaned up; its context bounds the start only. [Server.Stop] may be called at
// any time and more than once; it waits until no goroutine, port, file or lock is left. The channel
// [Server.Failed] is closed when the control plane cannot continue.
//
// A process can run several independent control planes. They share the process's feature gates,
// klog and metrics, because the Kubernetes libraries have them only once per process.
//
// # Defaults
//
// The zero [Options] keep nothing: etcd is in a temporary directory and does not wait for the disk.
// With Options.DataDir, an acknowledged write survives a crash of the process or of the machine.
// Access is as in kube-apiserver: TLS only, RBAC, and next to nothing for anonymous users.
// [Server.RESTConfig] is for an administrator, [Server.User] for other users.
package server
