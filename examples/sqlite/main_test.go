package main

import (
	"context"
	"path/filepath"
	"strings"
	"testing"

	"github.com/kinproc/kinproc/examples/kubectl"
	"github.com/kinproc/kinproc/server"
	"github.com/kinproc/kinproc/server/servertest"
)

// start runs the server until the returned function is called.
func start(t *testing.T, s *server.Server, k *kubectl.Kubectl, file string) (stop func()) {
	t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- run(ctx, s.RESTConfig(), file) }()
	for {
		select {
		case err := <-ended:
			t.Fatalf("the server ended: %v", err)
		case <-t.Context().Done():
			t.Fatal("the server cannot be reached")
		default:
		}
		if _, err := k.Try("get", "--raw", "/apis/notes.example.com/v1/notes"); err == nil {
			break
		}
	}
	return func() {
		cancel()
		if err := <-ended; err != nil {
			t.Error(err)
		}
	}
}

func TestNotesOutlastTheServer(t *testing.T) {
	t.Parallel()
	s := servertest.Run(t)
	k := kubectl.New(t, s)
	file := filepath.Join(t.TempDir(), "notes.db")
	stop := start(t, s, k, file)
	for _, name := range []string{"milk", "bread"} {
		k.Apply("{apiVersion: notes.example.com/v1, kind: Note, metadata: {name: " + name +
			", namespace: default}, text: buy it}")
	}
	k.Run("patch", "note", "milk", "--type=merge", "-p", `{"text":"bought"}`)
	k.Run("delete", "note", "bread")
	stop()

	db, err := openDatabase(t.Context(), file)
	if err != nil {
		t.Fatal(err)
	}
	var key, value string
	err = db.QueryRow(`SELECT key, value FROM objects`).Scan(&key, &value)
	if err != nil || key != "/notes.example.com/notes/default/milk" ||
		!strings.Contains(value, "bought") {
		t.Errorf("the database has %s: %s, %v", key, value, err)
	}
	if err := db.Close(); err != nil {
		t.Error(err)
	}

	defer start(t, s, k, file)()
	if got := k.Run("get", "notes"); !strings.Contains(got, "bought") ||
		strings.Contains(got, "bread") {
		t.Errorf("after the restart: %s", got)
	}
}
