// Package embed runs an etcd member inside the process, without ports, peers or configuration.
//
//	db, err := embed.Start(ctx, embed.Options{Ephemeral: true})
//	if err != nil {
//		return err
//	}
//	defer db.Stop(context.Background())
//	_, err = db.Client().Put(ctx, "/greeting", "hello")
//
// [Start] returns when the member is ready to serve requests. If it fails, it releases everything
// that it has opened. [Etcd.Stop] leaves no goroutines, locks or sockets behind, and no files if
// the member is ephemeral. A process can run several independent members.
//
// Unless [Options.Ephemeral] is set, acknowledged writes survive a crash of the process and of the
// machine. Only one process at a time can use a data directory. Problems with a directory, such as
// use by another process, damage, or data of a newer etcd, are detected before etcd opens it,
// because etcd itself exits the process on most of them. They are returned as an [*Error].
package embed
