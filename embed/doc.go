// Package embed runs one etcd member inside the process: no port, no peer, no configuration.
//
//	db, err := embed.Start(ctx, embed.Options{Ephemeral: true})
//	if err != nil {
//		return err
//	}
//	defer db.Stop(context.Background())
//	_, err = db.Client().Put(ctx, "/greeting", "hello")
//
// [Start] returns when the member answers, or after undoing everything. [Etcd.Stop] leaves no goroutine, lock, socket or
// (when ephemeral) file behind. Several members live in one process without seeing each other.
//
// Unless [Options.Ephemeral] is set, a write that was acknowledged survives the death of the process and of the machine.
// One process at a time may use a data directory. What is wrong with a directory (another process, damage, data of a newer etcd)
// is found before etcd opens it, because etcd itself answers most of that by ending the process; it comes back as an [*Error].
package embed
