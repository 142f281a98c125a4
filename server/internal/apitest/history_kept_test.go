package apitest

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	eventsv1 "k8s.io/api/events/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"github.com/kinproc/kinproc/chain/history"
	"github.com/kinproc/kinproc/server"
	"github.com/kinproc/kinproc/server/servertest"
)

// told returns the events of versions, with a question mark if the writer is unknown.
func told(versions []history.Version) string {
	var all []string
	for _, v := range versions {
		known := ""
		if v.Writer == nil || v.Time == nil {
			known = "?"
		}
		all = append(all, v.Event+known)
	}
	return strings.Join(all, " ")
}

const thrice = "created updated deleted"

func TestHistoryIsDecrypted(t *testing.T) {
	t.Parallel()
	file := writeFile(t, "encryption.yaml", encrypted("abc"))
	s := servertest.Run(t, servertest.WithoutControllers, func(o *server.Options) {
		o.EncryptionProviderConfig = file
	})
	writeHistory(t, s.RESTConfig(), "default", "limits")
	versions := servertest.History(t, s, configMapResource, "default", "limits")
	if told(versions) != thrice || !slices.ContainsFunc(versions[1].Changes, func(c history.Change) bool {
		return c.Path == ".data.size" && string(c.Before) == `"1"` && string(c.After) == `"2"`
	}) {
		t.Errorf("%s: %+v", told(versions), versions)
	}
}

// What has been compacted is gone for ever, which is another answer than that it was never there.
func TestHistoryAfterCompaction(t *testing.T) {
	t.Parallel()
	s := servertest.Run(t, servertest.WithoutControllers, func(o *server.Options) {
		o.ListenEtcd = "127.0.0.1:0"
	})
	writeHistory(t, s.RESTConfig(), "default", "limits")
	first := servertest.History(t, s, configMapResource, "default", "limits")[0].Revision
	path := history.PathOf(configMapResource, "default", "limits")
	get := func(o history.Options) error {
		_, err := history.Get(t.Context(), s.RESTConfig(), path, o)
		return err
	}
	if err := get(history.Options{At: first - 1}); !apierrors.IsNotFound(err) {
		t.Errorf("before it was created: %v", err)
	}
	etcd := etcdClient(t, s, etcdTLS(t, s))
	now, err := etcd.Put(t.Context(), "/other", "")
	ok(t, err)
	_, err = etcd.Compact(t.Context(), now.Header.Revision)
	ok(t, err)
	for _, o := range []history.Options{{}, {At: first}} {
		if err := get(o); !apierrors.IsResourceExpired(err) ||
			!strings.Contains(err.Error(), "no longer kept") {
			t.Errorf("%+v: %v", o, err)
		}
	}
}

// With an etcd elsewhere, the history is the same. Who wrote through another server is not known.
func TestHistoryInAnotherEtcd(t *testing.T) {
	t.Parallel()
	etcd := servertest.Run(t, servertest.WithoutControllers, func(o *server.Options) {
		o.ListenEtcd = "127.0.0.1:0"
	})
	pki := t.TempDir()
	external := func(o *server.Options) {
		o.EtcdServers, o.EtcdPrefix, o.PKIDir = etcd.EtcdEndpoints(), "/elsewhere", pki
		o.EtcdCAFile, o.EtcdCertFile, o.EtcdKeyFile = etcd.EtcdClientFiles()
	}
	s := servertest.Run(t, servertest.WithoutControllers, external)
	other := servertest.Run(t, servertest.WithoutControllers, external)
	writeHistory(t, s.RESTConfig(), "default", "limits")
	if got := told(servertest.History(t, s, configMapResource, "default", "limits")); got != thrice {
		t.Errorf("the history is %s", got)
	}
	if got := told(servertest.History(t, s, configMapResource, "", "")); !strings.HasSuffix(got, thrice) {
		t.Errorf("the history of all is %s", got)
	}
	if got := told(servertest.History(t, other, configMapResource, "default", "limits")); got !=
		"created? updated? deleted?" {
		t.Errorf("the history that another server knows is %s", got)
	}
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	var followed []history.Version
	ok(t, history.Follow(ctx, s.RESTConfig(), history.PathOf(configMapResource, "default", "limits"),
		history.Options{}, func(v history.Version) {
			switch followed = append(followed, v); len(followed) {
			case 3:
				writeHistory(t, s.RESTConfig(), "default", "limits")
			case 6:
				cancel()
			}
		}))
	if got := told(followed); got != thrice+" "+thrice {
		t.Errorf("followed: %s", got)
	}
}

// A fork has the history of what it was made from, but nobody knows its writers any more. A reset
// is a version like any other, without a writer.
func TestHistoryOfForkAndReset(t *testing.T) {
	t.Parallel()
	s := servertest.Run(t, servertest.WithoutControllers)
	maps := kubernetes.NewForConfigOrDie(s.RESTConfig()).CoreV1().ConfigMaps("default")
	_, err := maps.Create(t.Context(), named("limits"), metav1.CreateOptions{})
	ok(t, err)
	snapshot := takeSnapshot(t, s)
	ok(t, maps.Delete(t.Context(), "limits", metav1.DeleteOptions{}))
	resetTo(t, s, snapshot)
	changed := named("limits")
	changed.Data = map[string]string{"size": "2"}
	_, err = maps.Update(t.Context(), changed, metav1.UpdateOptions{})
	ok(t, err)
	got := told(servertest.History(t, s, configMapResource, "default", "limits"))
	if got != "created deleted created? updated" {
		t.Errorf("after a reset: %s", got)
	}
	fork := servertest.Run(t, servertest.WithoutControllers, servertest.From(snapshot))
	ok(t, kubernetes.NewForConfigOrDie(fork.RESTConfig()).CoreV1().ConfigMaps("default").Delete(
		t.Context(), "limits", metav1.DeleteOptions{}))
	got = told(servertest.History(t, fork, configMapResource, "default", "limits"))
	if got != "created? deleted" {
		t.Errorf("in a fork: %s", got)
	}
}

func TestHistoryOfEvents(t *testing.T) {
	t.Parallel()
	s := servertest.Run(t, servertest.WithoutControllers)
	_, err := kubernetes.NewForConfigOrDie(s.RESTConfig()).CoreV1().Events("default").Create(t.Context(),
		&corev1.Event{
			ObjectMeta:     metav1.ObjectMeta{Name: "happened"},
			InvolvedObject: corev1.ObjectReference{Namespace: "default", Name: "x"},
		}, metav1.CreateOptions{})
	ok(t, err)
	for _, version := range []string{"v1", eventsv1.SchemeGroupVersion.String()} {
		resource := corev1.SchemeGroupVersion.WithResource("events")
		if version != "v1" {
			resource = eventsv1.SchemeGroupVersion.WithResource("events")
		}
		if got := told(servertest.History(t, s, resource, "default", "happened")); got != "created" {
			t.Errorf("%s: %s", version, got)
		}
	}
}

// A history that is followed ends with the server, also for a client that does not read.
func TestHistoryEndsWithTheServer(t *testing.T) {
	t.Parallel()
	for name, config := range map[string]func(*testing.T, *server.Server) *rest.Config{
		"TLS": func(_ *testing.T, s *server.Server) *rest.Config { return s.RESTConfig() },
		"in process": func(t *testing.T, s *server.Server) *rest.Config {
			config, err := s.InProcessConfig("admin", "system:masters")
			ok(t, err)
			return config
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := servertest.Run(t, servertest.WithoutControllers)
			config := config(t, s)
			maps := kubernetes.NewForConfigOrDie(config).CoreV1().ConfigMaps("default")
			for i := range 12 {
				m := named(fmt.Sprint("large-", i))
				m.Data = map[string]string{"text": strings.Repeat("x", 1<<20)}
				_, err := maps.Create(t.Context(), m, metav1.CreateOptions{})
				ok(t, err)
			}
			path := history.PathOf(configMapResource, "default", "")
			seen, ended := make(chan struct{}, 100), make(chan error, 1)
			go func() {
				ended <- history.Follow(context.Background(), config, path, history.Options{},
					func(history.Version) { seen <- struct{}{} })
			}()
			for range 12 {
				<-seen
			}
			client, err := rest.HTTPClientFor(config)
			ok(t, err)
			response, err := client.Get(config.Host + history.Path + path + "?watch=true")
			ok(t, err)
			defer response.Body.Close()
			var first json.RawMessage
			if err := json.NewDecoder(response.Body).Decode(&first); err != nil ||
				response.StatusCode != http.StatusOK {
				t.Fatalf("%s, %v", response.Status, err)
			}
			ctx, cancel := context.WithTimeout(context.Background(), 20*time.Second)
			defer cancel()
			ok(t, s.Stop(ctx))
			if err := <-ended; err != nil {
				t.Errorf("the client that reads: %v", err)
			}
			_, _ = io.Copy(io.Discard, response.Body) // it ends
		})
	}
}
