package examples_test

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/gorilla/websocket"
	"k8s.io/client-go/rest"

	"github.com/kinproc/kinproc/examples/kubectl"
	"github.com/kinproc/kinproc/server"
	"github.com/kinproc/kinproc/server/servertest"
)

// startEngine runs the server, registered with the control plane.
func startEngine(t *testing.T, k *kubectl.Kubectl, dir string) *program {
	t.Helper()
	p := start(t, dir, "engine", "-secure-port", "0")
	k.Run("apply", "-f", p.registration())
	p.await(k, "/apis/chat.example.com/v1/rooms")
	return p
}

const lobby = `
apiVersion: chat.example.com/v1
kind: Room
metadata: {name: lobby, namespace: default}
spec: {topic: the weather}
`

func TestEngine(t *testing.T) {
	t.Parallel()
	s := servertest.Run(t, patient)
	k := kubectl.New(t, s)
	dir := folder(t, s)
	p := startEngine(t, k, dir)

	k.Apply(lobby)
	file := filepath.Join(t.TempDir(), "lobby.yaml")
	if err := os.WriteFile(file, []byte(lobby), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, test := range []struct{ command, want string }{
		{"get rooms", "the weather"},
		{"get room lobby -o jsonpath={.spec.seats}", "10"},
		{"get rooms --field-selector spec.topic=nothing -o name", ""},
		{"apply --server-side --force-conflicts -f " + file, "serverside-applied"},
		{"patch room lobby --type=merge -p {\"spec\":{\"seats\":2}}", "patched"},
		{"get room lobby -o jsonpath={.metadata.generation}", "2"},
	} {
		if got := k.Run(strings.Fields(test.command)...); !strings.Contains(got, test.want) ||
			test.want == "" && got != "" {
			t.Errorf("kubectl %s prints %q, want %q", test.command, got, test.want)
		}
	}
	if _, err := k.Try("patch", "room", "lobby", "--type=merge", "-p",
		`{"spec":{"seats":-1}}`); err == nil || !strings.Contains(err.Error(), "spec.seats") {
		t.Errorf("negative seats: %v", err)
	}
	if data, err := os.ReadFile(filepath.Join(dir, "rooms", "chat.example.com", "rooms",
		"default", "lobby.json")); err != nil || !strings.Contains(string(data), "the weather") {
		t.Errorf("file: %s, %v", data, err)
	}
	talkTogether(t, s)
	p.stop()

	// The files survive a restart.
	startEngine(t, k, dir)
	if got := k.Run("get", "room", "lobby", "-o", "jsonpath={.spec.seats}"); got != "2" {
		t.Errorf("%s seats after the restart, want 2", got)
	}
	eventually(t, func() error { // the documents are asked for after the server is available
		got, err := k.Try("explain", "room.spec")
		if err == nil && !strings.Contains(got, "What people talk about") {
			err = fmt.Errorf("kubectl explain: %s", got)
		}
		return err
	})
	k.Run("delete", "room", "lobby")
	if got := k.Run("get", "rooms", "-o", "name"); got != "" {
		t.Errorf("%q exists after the deletion", got)
	}
}

// talkTogether lets two users talk to each other through the aggregator.
func talkTogether(t *testing.T, s *server.Server) {
	t.Helper()
	enter := func(user string) *websocket.Conn {
		config, err := s.User(user, "system:masters")
		if err != nil {
			t.Fatal(err)
		}
		tls, err := rest.TLSConfigFor(config)
		if err != nil {
			t.Fatal(err)
		}
		dialer := websocket.Dialer{TLSClientConfig: tls}
		url := strings.Replace(s.URL(), "https", "wss", 1) +
			"/apis/chat.example.com/v1/namespaces/default/rooms/lobby/talk"
		conn, response, err := dialer.DialContext(t.Context(), url, nil)
		if err != nil {
			t.Fatalf("enter: %v (%v)", err, response)
		}
		response.Body.Close()
		t.Cleanup(func() { conn.Close() })
		return conn
	}
	hear := func(conn *websocket.Conn, want string) {
		t.Helper()
		if _, got, err := conn.ReadMessage(); err != nil || string(got) != want {
			t.Fatalf("heard %q, %v, want %q", got, err, want)
		}
	}
	ann, bob := enter("ann"), enter("bob")
	hear(ann, "welcome, ann; we talk about the weather")
	hear(bob, "welcome, bob; we talk about the weather")
	if err := ann.WriteMessage(websocket.TextMessage, []byte("nice day")); err != nil {
		t.Fatal(err)
	}
	hear(bob, "ann: nice day")
	hear(ann, "ann: nice day")
	hear(enter("carl"), "the room is full")
}
