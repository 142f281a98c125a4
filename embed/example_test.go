package embed_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log"
	"os"
	"path/filepath"

	"github.com/kinproc/kinproc/embed"
)

func Example() {
	ctx := context.Background()
	db, err := embed.Start(ctx, embed.Options{Ephemeral: true})
	if err != nil {
		log.Fatal(err)
	}
	defer db.Stop(ctx)

	if _, err := db.Client().Put(ctx, "/greeting", "hello"); err != nil {
		log.Fatal(err)
	}
	got, err := db.Client().Get(ctx, "/greeting")
	if err != nil {
		log.Fatal(err)
	}
	fmt.Printf("%s\n", got.Kvs[0].Value)
	// Output: hello
}

// A snapshot becomes the data of another member.
func ExampleRestore() {
	ctx := context.Background()
	db, err := embed.Start(ctx, embed.Options{Ephemeral: true})
	if err != nil {
		log.Fatal(err)
	}
	if _, err := db.Client().Put(ctx, "/greeting", "hello"); err != nil {
		log.Fatal(err)
	}
	var snapshot bytes.Buffer
	if err := db.Snapshot(ctx, &snapshot); err != nil {
		log.Fatal(err)
	}
	if err := db.Stop(ctx); err != nil {
		log.Fatal(err)
	}

	dir, err := os.MkdirTemp("", "example")
	if err != nil {
		log.Fatal(err)
	}
	defer os.RemoveAll(dir)
	restored := filepath.Join(dir, "etcd")
	if err := embed.Restore(restored, &snapshot); err != nil {
		log.Fatal(err)
	}
	again, err := embed.Start(ctx, embed.Options{Dir: restored})
	if err != nil {
		log.Fatal(err)
	}
	defer again.Stop(ctx)
	got, err := again.Client().Get(ctx, "/greeting")
	if err != nil {
		log.Fatal(err)
	}
	fmt.Printf("%s\n", got.Kvs[0].Value)
	// Output: hello
}

// A data directory has one user at a time.
func ExampleInUse() {
	ctx := context.Background()
	dir, err := os.MkdirTemp("", "example")
	if err != nil {
		log.Fatal(err)
	}
	defer os.RemoveAll(dir)
	db, err := embed.Start(ctx, embed.Options{Dir: dir})
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println(errors.Is(embed.InUse(dir), embed.ErrLocked))
	if err := db.Stop(ctx); err != nil {
		log.Fatal(err)
	}
	fmt.Println(embed.InUse(dir))
	// Output:
	// true
	// <nil>
}
