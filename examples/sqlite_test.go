package examples_test

import (
	"database/sql"
	"path/filepath"
	"strings"
	"testing"

	_ "modernc.org/sqlite" // the driver

	"github.com/kinproc/kinproc/examples/kubectl"
	"github.com/kinproc/kinproc/server/servertest"
)

func TestNotesOutlastTheServer(t *testing.T) {
	t.Parallel()
	s := servertest.Run(t, patient)
	k := kubectl.New(t, s)
	const notes = "/apis/notes.example.com/v1/notes"
	dir := folder(t, s)
	p := start(t, dir, "sqlite")
	p.await(k, notes)
	for _, name := range []string{"milk", "bread"} {
		k.Apply("{apiVersion: notes.example.com/v1, kind: Note, metadata: {name: " + name +
			", namespace: default}, text: buy it}")
	}
	k.Run("patch", "note", "milk", "--type=merge", "-p", `{"text":"bought"}`)
	k.Run("delete", "note", "bread")
	p.stop()

	db, err := sql.Open("sqlite", filepath.Join(dir, "notes.db"))
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

	start(t, dir, "sqlite").await(k, notes)
	if got := k.Run("get", "notes"); !strings.Contains(got, "bought") ||
		strings.Contains(got, "bread") {
		t.Errorf("after the restart: %s", got)
	}
}
