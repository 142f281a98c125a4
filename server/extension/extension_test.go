package extension_test

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"k8s.io/client-go/rest"

	"github.com/kinproc/kinproc/chain/kind"
	"github.com/kinproc/kinproc/server/extension"
	"github.com/kinproc/kinproc/server/servertest"
)

// start runs a server of the group chat until the returned function is called or the test ends.
func start(t *testing.T, o extension.Options) (*extension.Server, func()) {
	t.Helper()
	if o.Groups == nil {
		o.Groups = []kind.Group{chat()}
	}
	s, err := extension.New(o)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- s.Run(ctx) }()
	stopped := false
	stop := func() {
		if stopped {
			return
		}
		stopped = true
		cancel()
		if err := <-ended; err != nil {
			t.Errorf("run: %v", err)
		}
	}
	t.Cleanup(stop)
	select {
	case <-s.Ready():
	case err := <-ended:
		t.Fatalf("run: %v", err)
	case <-time.After(time.Minute):
		t.Fatal("the server is not ready after a minute")
	}
	return s, stop
}

// register registers s and returns when it can be used.
func register(t *testing.T, config *rest.Config, s *extension.Server) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	if err := extension.Register(ctx, config, s.Registration()); err != nil {
		t.Fatal(err)
	}
}

const lobby = `{apiVersion: chat.example.com/v2, kind: Room, metadata: {name: lobby},
spec: {topic: the weather, doors: [{name: front, color: red}]}}`

func TestKubectl(t *testing.T) {
	t.Parallel()
	plane := servertest.Run(t)
	s, _ := start(t, extension.Options{RESTConfig: plane.RESTConfig()})
	register(t, plane.RESTConfig(), s)
	k := newKubectl(t, plane)
	for _, step := range []struct{ want, in, command string }{
		{"room.chat.example.com/lobby created", lobby, "apply -f FILE"},
		{"the weather", "", "get rooms"},
		{"10", "", "get room lobby -o jsonpath={.spec.seats}"},
		{"10", "", "get rooms.v1.chat.example.com lobby -o jsonpath={.chairs}"},
		{"What people talk about.", "", "explain rooms.spec"},
		{"topic\t<string> -required-", "", "explain rooms.spec"},
		{"chairs\t<integer>", "", "explain rooms --api-version=chat.example.com/v1"},
		{"serverside-applied", strings.Replace(lobby, "front, color: red", "back, color: blue", 1),
			"apply --server-side --field-manager=other --force-conflicts -f FILE"},
		{"serverside-applied", strings.Replace(lobby, "front, color: red", "side", 1),
			"apply --server-side --field-manager=third --force-conflicts -f FILE"},
		{"back side", "", "get room lobby -o jsonpath={.spec.doors[*].name}"},
		{"patched", "", `patch room lobby --subresource=status --type=merge -p {"status":{"present":3}}`},
		{"3", "", "get room lobby -o jsonpath={.status.present}"},
		{"patched", "", `patch room lobby --type=json -p [{"op":"replace","path":"/spec/topic","value":"x"}]`},
		{"deleted", "", "delete room lobby"},
	} {
		k.must(step.want, step.in, strings.Fields(step.command)...)
	}
	for _, refused := range []struct{ want, in, command string }{
		{"spec.seats", strings.Replace(lobby, "doors", "seats: -1, doors", 1), "apply -f FILE"},
		{`unknown field "spec.dors"`, strings.Replace(lobby, "doors", "dors", 1), "apply -f FILE"},
		{"field not declared in schema", strings.Replace(lobby, "doors", "dors", 1),
			"apply --server-side --validate=false -f FILE"},
	} {
		_, err := k.run(refused.in, strings.Fields(refused.command)...)
		if err == nil || !strings.Contains(err.Error(), refused.want) {
			t.Errorf("kubectl %s: %v, want %q", refused.command, err, refused.want)
		}
	}
	if err := extension.Unregister(t.Context(), plane.RESTConfig(), s.Registration()); err != nil {
		t.Fatal(err)
	}
	if _, err := k.run("", "get", "apiservice", "v2.chat.example.com"); err == nil {
		t.Error("the registration exists after Unregister")
	}
	if out, err := k.run("", "api-versions"); err != nil || strings.Contains(out, "chat.example.com") {
		t.Errorf("the versions after Unregister are %s (%v)", out, err)
	}
}

func TestBadOptions(t *testing.T) {
	t.Parallel()
	_, err := extension.New(extension.Options{
		Groups:      []kind.Group{{Name: "apps"}, chat(), chat()},
		RESTConfig:  &rest.Config{},
		Name:        "Chat!",
		BindAddress: "localhost",
		SecurePort:  70000,
		Host:        "a b",
		Selector:    map[string]string{"app": "chat"},
		Storage:     extension.Etcd(extension.EtcdOptions{Prefix: "/registry"}),
	})
	if err == nil {
		t.Fatal("no error")
	}
	for _, want := range []string{
		"Groups[0].Name", "Groups[0].Versions", "Groups[2].Name", "Name: \"Chat!\"", "BindAddress",
		"SecurePort",
		"Host: ", "Host and Selector", "at least one endpoint", "the control plane's own",
	} {
		if !strings.Contains(err.Error(), want) {
			t.Errorf("the error does not name %q: %v", want, err)
		}
	}
}

func TestRunOnce(t *testing.T) {
	t.Parallel()
	s, err := extension.New(extension.Options{
		Groups: []kind.Group{chat()}, RESTConfig: &rest.Config{Host: "https://127.0.0.1:1"},
	})
	if err != nil {
		t.Fatal(err)
	}
	if err := s.Close(); err != nil {
		t.Error(err)
	}
	if err := s.Run(t.Context()); err == nil || errors.Is(err, context.Canceled) {
		t.Errorf("run after close: %v", err)
	}
}
