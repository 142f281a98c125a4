package apitest

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/kinproc/kinproc/embed"
	"github.com/kinproc/kinproc/server"
	"github.com/kinproc/kinproc/server/servertest"
)

// A fork serves the custom resources of its snapshot at once, with the same UIDs, revisions and
// addresses, and tells what is true about itself.
func TestForkContinuesWithItsSnapshot(t *testing.T) {
	t.Parallel()
	const definitions = 10
	s := servertest.Run(t)
	origin := clientsOf(t, s)
	define(t, s, definitions)
	service, err := origin.CoreV1().Services("default").Create(t.Context(), &corev1.Service{
		ObjectMeta: metav1.ObjectMeta{Name: "web"},
		Spec: corev1.ServiceSpec{Type: corev1.ServiceTypeNodePort,
			Ports: []corev1.ServicePort{{Port: 80}}},
	}, metav1.CreateOptions{})
	ok(t, err)
	created := map[string]string{}
	for i := range definitions {
		group := fmt.Sprintf("g%d.example.com", i)
		w, err := origin.widgets(group).Create(t.Context(), widget(group, "kept"), metav1.CreateOptions{})
		ok(t, err)
		created[group] = string(w.GetUID()) + " " + w.GetResourceVersion()
	}
	awaitRootCertificates(t, origin)
	snapshot := takeSnapshot(t, s)
	_, err = origin.CoreV1().ConfigMaps("default").Create(t.Context(), named("later"),
		metav1.CreateOptions{})
	ok(t, err)

	for name, fork := range map[string]func(o *server.Options){
		"from memory": servertest.From(snapshot),
		"from a file": servertest.From(written(t, snapshot)),
		"kept": func(o *server.Options) {
			o.From, o.DataDir = snapshot, filepath.Join(t.TempDir(), "data")
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			f := servertest.Run(t, fork)
			c := clientsOf(t, f)
			for group, want := range created {
				// One attempt: the CRD must be served when the fork is ready.
				w, err := c.widgets(group).Get(t.Context(), "kept", metav1.GetOptions{})
				ok(t, err)
				if got := string(w.GetUID()) + " " + w.GetResourceVersion(); got != want {
					t.Errorf("%s: got %s, want %s", group, got, want)
				}
				_, err = c.widgets(group).Create(t.Context(), widget(group, "new"), metav1.CreateOptions{})
				ok(t, err)
				if list, err := c.Discovery().ServerResourcesForGroupVersion(group + "/v1"); err != nil ||
					len(list.APIResources) == 0 {
					t.Errorf("discovery of %s: %v %v", group, list, err)
				}
			}
			again, err := c.CoreV1().Services("default").Get(t.Context(), "web", metav1.GetOptions{})
			ok(t, err)
			if again.Spec.ClusterIP != service.Spec.ClusterIP || again.UID != service.UID ||
				again.ResourceVersion != service.ResourceVersion {
				t.Errorf("the service became %v, was %v", again, service)
			}
			taken := again.DeepCopy()
			taken.ObjectMeta = metav1.ObjectMeta{Name: "taken"}
			if _, err := c.CoreV1().Services("default").Create(t.Context(), taken,
				metav1.CreateOptions{}); !apierrors.IsInvalid(err) ||
				!strings.Contains(err.Error(), "already allocated") {
				t.Errorf("a service with an address in use: %v", err)
			}
			if _, err := c.CoreV1().ConfigMaps("default").Get(t.Context(), "later",
				metav1.GetOptions{}); !apierrors.IsNotFound(err) {
				t.Errorf("what was created after the snapshot: %v", err)
			}
			checkOwnObjects(t, f, c)
		})
	}
}

// What describes the control plane exists in a fork even if the snapshot lacks it.
func TestForkOfWhatLacksOwnObjects(t *testing.T) {
	t.Parallel()
	s := servertest.Run(t)
	origin := clientsOf(t, s)
	ok(t, origin.CoreV1().Services("default").Delete(t.Context(), "kubernetes",
		metav1.DeleteOptions{}))
	ok(t, origin.CoreV1().ConfigMaps("kube-system").Delete(t.Context(),
		"extension-apiserver-authentication", metav1.DeleteOptions{}))
	awaitRootCertificates(t, origin)
	f := servertest.Run(t, servertest.From(takeSnapshot(t, s)))
	checkOwnObjects(t, f, clientsOf(t, f))
}

// The index of a fork lists the groups of its CRDs at once, besides the other paths.
func TestIndexOfFork(t *testing.T) {
	t.Parallel()
	s := servertest.Run(t)
	define(t, s, 1)
	f := servertest.Run(t, servertest.From(takeSnapshot(t, s)))
	index, err := clientsOf(t, f).Discovery().RESTClient().Get().AbsPath("/").DoRaw(t.Context())
	ok(t, err)
	var paths metav1.RootPaths
	ok(t, json.Unmarshal(index, &paths))
	for _, path := range []string{"/apis/g0.example.com", "/apis/g0.example.com/v1", "/apis/apps/v1",
		"/api/v1", "/apis", "/healthz", "/openapi/v2", "/readyz/poststarthook/rbac/bootstrap-roles"} {
		if !slices.Contains(paths.Paths, path) {
			t.Errorf("the index has no %s", path)
		}
	}
}

// checkOwnObjects checks the objects that describe the control plane itself.
func checkOwnObjects(t *testing.T, s *server.Server, c clients) {
	t.Helper()
	ca := string(s.RESTConfig().CAData)
	namespaces, err := c.CoreV1().Namespaces().List(t.Context(), metav1.ListOptions{})
	ok(t, err)
	for _, n := range namespaces.Items {
		m, err := c.CoreV1().ConfigMaps(n.Name).Get(t.Context(), "kube-root-ca.crt", metav1.GetOptions{})
		if err != nil || m.Data["ca.crt"] != ca {
			t.Errorf("the root certificates in %s are not those of this control plane (%v)", n.Name, err)
		}
	}
	trust, err := c.CoreV1().ConfigMaps("kube-system").Get(t.Context(),
		"extension-apiserver-authentication", metav1.GetOptions{})
	ok(t, err)
	if !strings.Contains(trust.Data["client-ca-file"], strings.TrimSpace(ca)) {
		t.Error("extension API servers do not trust this control plane's authority")
	}
	own, err := c.CoreV1().Services("default").Get(t.Context(), "kubernetes", metav1.GetOptions{})
	ok(t, err)
	if port := strconv.Itoa(own.Spec.Ports[0].TargetPort.IntValue()); !strings.HasSuffix(s.URL(),
		":"+port) {
		t.Errorf("the service default/kubernetes leads to port %s, the server is at %s", port, s.URL())
	}
}

func TestForksDoNotInfluenceEachOther(t *testing.T) {
	t.Parallel()
	s := servertest.Run(t, servertest.WithoutControllers)
	_, err := clientsOf(t, s).CoreV1().ConfigMaps("default").Create(t.Context(), named("common"),
		metav1.CreateOptions{})
	ok(t, err)
	snapshot := takeSnapshot(t, s)
	for n := range 3 {
		t.Run(strconv.Itoa(n), func(t *testing.T) {
			t.Parallel()
			c := clientsOf(t, servertest.Run(t, servertest.WithoutControllers, servertest.From(snapshot)))
			maps := c.CoreV1().ConfigMaps("default")
			for i := range 20 {
				_, err := maps.Create(t.Context(), named(fmt.Sprintf("fork-%d-%d", n, i)),
					metav1.CreateOptions{})
				ok(t, err)
			}
			list, err := maps.List(t.Context(), metav1.ListOptions{})
			ok(t, err)
			for _, m := range list.Items {
				if m.Name != "common" && !strings.HasPrefix(m.Name, fmt.Sprintf("fork-%d-", n)) {
					t.Errorf("fork %d has %s", n, m.Name)
				}
			}
			if len(list.Items) != 21 {
				t.Errorf("fork %d has %d config maps, want 21", n, len(list.Items))
			}
		})
	}
}

func TestFromIsRefused(t *testing.T) {
	t.Parallel()
	s := servertest.Run(t, servertest.WithoutControllers)
	snapshot := takeSnapshot(t, s)
	_, err := server.New(server.Options{From: snapshot, EtcdServers: []string{"http://127.0.0.1:1"}})
	if err == nil || !strings.Contains(err.Error(), "Options.From: Options.EtcdServers is set") {
		t.Errorf("with an external etcd: %v", err)
	}
	dir := filepath.Join(t.TempDir(), "data")
	t.Run("used", func(t *testing.T) {
		servertest.Run(t, servertest.WithoutControllers, func(o *server.Options) { o.DataDir = dir })
	})
	used, err := server.New(server.Options{From: snapshot, DataDir: dir})
	ok(t, err)
	if err := used.Start(t.Context()); !errors.Is(err, embed.ErrHasData) ||
		!strings.Contains(err.Error(), "Options.From: ") || !strings.Contains(err.Error(), dir) {
		t.Errorf("with data: %v", err)
	}
}

func TestReadSnapshotRefuses(t *testing.T) {
	t.Parallel()
	var whole bytes.Buffer
	_, err := takeSnapshot(t, servertest.Run(t, servertest.WithoutControllers)).WriteTo(&whole)
	ok(t, err)
	flipped := bytes.Clone(whole.Bytes())
	flipped[len(flipped)/2] ^= 1
	for name, c := range map[string]struct {
		data []byte
		says string
	}{
		"nothing":         {nil, "damaged"},
		"a text":          {[]byte("apiVersion: v1\n"), "is not a complete snapshot"},
		"a cut snapshot":  {whole.Bytes()[:whole.Len()-100], "is not a complete snapshot"},
		"half a snapshot": {whole.Bytes()[:4096*(whole.Len()/8192)], "damaged"},
		"a flipped bit":   {flipped, "checksum does not match"},
		"zeros":           {make([]byte, 1<<16), "damaged"},
	} {
		_, err := server.ReadSnapshot(bytes.NewReader(c.data))
		if !errors.Is(err, embed.ErrCorrupt) || !strings.Contains(err.Error(), c.says) {
			t.Errorf("%s: got %v, want %q", name, err, c.says)
		}
	}
}
