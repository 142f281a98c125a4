package examples_test

import (
	"context"
	"fmt"
	"go/scanner"
	"go/token"
	"os"
	"path/filepath"
	"strings"
	"testing"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/dynamic"

	"github.com/kinproc/kinproc/embed"
	"github.com/kinproc/kinproc/examples/kubectl"
	"github.com/kinproc/kinproc/server"
	"github.com/kinproc/kinproc/server/servertest"
)

const web = `{apiVersion: net.example.com/v1, kind: PortRule,
metadata: {name: web, namespace: default}, spec: {from: 8000, to: 8080}}`

func TestTheThreeDoTheSame(t *testing.T) {
	t.Parallel()
	for _, name := range []string{"apiserver", "nethttp", "sdk"} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := servertest.Run(t, patient)
			k := kubectl.New(t, s)
			args := []string{name}
			if name == "apiserver" {
				args = []string{"-etcd", startEtcd(t), name}
			}
			start(t, folder(t, s), "serve", args...).await(k, "/apis/net.example.com/v1/portrules")
			checkPortRules(t, s, k)
		})
	}
}

// startEtcd starts etcd and returns its endpoint.
func startEtcd(t *testing.T) string {
	t.Helper()
	db, err := embed.Start(t.Context(), embed.Options{Ephemeral: true, ListenClient: true})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := db.Stop(context.Background()); err != nil {
			t.Error(err)
		}
	})
	return db.Endpoints()[0]
}

// checkPortRules uses a server through the control plane.
func checkPortRules(t *testing.T, s *server.Server, k *kubectl.Kubectl) {
	client, err := dynamic.NewForConfig(s.RESTConfig())
	if err != nil {
		t.Fatal(err)
	}
	rules := client.Resource(schema.GroupVersionResource{
		Group: "net.example.com", Version: "v1", Resource: "portrules",
	}).Namespace("default")
	w, err := rules.Watch(t.Context(), metav1.ListOptions{})
	if err != nil {
		t.Fatal(err)
	}
	defer w.Stop()
	k.Apply(web)
	stale, err := rules.Get(t.Context(), "web", metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	for _, step := range []struct{ want, command string }{
		{"TCP", "get portrule web -o jsonpath={.spec.protocol}"},
		{"8000-8080", "get portrules"},
		{"patched", `patch portrule web --type=merge -p {"spec":{"to":9000},"status":{"phase":"No"}}`},
		{"patched", `patch portrule web --subresource=status --type=merge -p {"status":{"phase":"Open"}}`},
		{"9000 Open", "get portrule web -o jsonpath={.spec.to}{'\\u0020'}{.status.phase}"},
		{"PROTOCOL", "get portrules"},
	} {
		if got := k.Run(strings.Fields(step.command)...); !strings.Contains(got, step.want) {
			t.Errorf("kubectl %s prints %q, want %q", step.command, got, step.want)
		}
	}
	for patch, want := range map[string]string{
		`{"spec":{"from":70000}}`:     "spec.from",
		`{"spec":{"to":1}}`:           "spec.to",
		`{"spec":{"protocol":"XYZ"}}`: "spec.protocol",
	} {
		_, err := k.Try("patch", "portrule", "web", "--type=merge", "-p", patch)
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("the patch %s: %v, want an error about %s", patch, err, want)
		}
	}
	if _, err := rules.Update(t.Context(), stale, metav1.UpdateOptions{}); !apierrors.IsConflict(err) {
		t.Errorf("an update of an old version: %v, want a conflict", err)
	}
	k.Run("delete", "portrule", "web")
	if _, err := rules.Get(t.Context(), "web", metav1.GetOptions{}); !apierrors.IsNotFound(err) {
		t.Errorf("get after the deletion: %v", err)
	}
	for _, want := range []watch.EventType{
		watch.Added, watch.Modified, watch.Modified, watch.Deleted,
	} {
		if e := <-w.ResultChan(); e.Type != want {
			t.Errorf("event %s, want %s", e.Type, want)
		}
	}
	stranger, err := s.User("stranger")
	if err != nil {
		t.Fatal(err)
	}
	strange, err := dynamic.NewForConfig(stranger)
	if err != nil {
		t.Fatal(err)
	}
	_, err = strange.Resource(schema.GroupVersionResource{
		Group: "net.example.com", Version: "v1", Resource: "portrules",
	}).Namespace("default").List(t.Context(), metav1.ListOptions{})
	if !apierrors.IsForbidden(err) {
		t.Errorf("a stranger lists port rules: %v", err)
	}
}

// The README has the number of lines of each server.
func TestPortRuleREADMECounts(t *testing.T) {
	t.Parallel()
	readme, err := os.ReadFile("portrule/README.md")
	if err != nil {
		t.Fatal(err)
	}
	types := lines(t, "v1")
	for _, row := range []string{
		fmt.Sprintf("| [nethttp](nethttp) | %d |", lines(t, "nethttp")),
		fmt.Sprintf("| [apiserver](apiserver) | %d |", lines(t, "apiserver")+types),
		fmt.Sprintf("| [sdk](sdk) | %d |", lines(t, "sdk")+types),
	} {
		if !strings.Contains(string(readme), row) {
			t.Errorf("the README does not say %q", row)
		}
	}
}

// lines counts the lines of Go code in a folder of portrule, without comments and blank lines.
func lines(t *testing.T, dir string) int {
	t.Helper()
	paths, err := filepath.Glob(filepath.Join("portrule", dir, "*.go"))
	if err != nil || len(paths) == 0 {
		t.Fatalf("no Go files in %s: %v", dir, err)
	}
	total := 0
	for _, path := range paths {
		source, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		files := token.NewFileSet()
		file := files.AddFile(path, -1, len(source))
		var s scanner.Scanner
		s.Init(file, source, nil, 0)
		counted := map[int]bool{}
		for {
			at, tok, literal := s.Scan()
			if tok == token.EOF {
				break
			}
			if tok == token.SEMICOLON && literal == "\n" {
				continue // inserted by the scanner
			}
			counted[files.Position(at).Line] = true
		}
		total += len(counted)
	}
	return total
}
