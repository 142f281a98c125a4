package server_test

import (
	"context"
	"path/filepath"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	apiextensions "k8s.io/apiextensions-apiserver/pkg/client/clientset/clientset/typed/apiextensions/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"

	"github.com/kinproc/kinproc/embed"
	"github.com/kinproc/kinproc/server"
)

// damageLimit is how long a start may take to fail because of an object that cannot be decoded, on
// a busy machine.
const damageLimit = 30 * time.Second

// change changes the value of a key in the etcd of a data directory that is not in use, and returns
// the old value.
func change(t *testing.T, dir, key string, to func(value []byte)) (was string) {
	t.Helper()
	e, err := embed.Start(t.Context(), embed.Options{Dir: filepath.Join(dir, "etcd")})
	if err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := e.Stop(context.Background()); err != nil {
			t.Error(err)
		}
	}()
	r, err := e.Client().Get(t.Context(), key)
	if err != nil {
		t.Fatal(err)
	}
	if len(r.Kvs) == 0 {
		t.Fatalf("key %s not found", key)
	}
	value := r.Kvs[0].Value
	was = string(value)
	to(value)
	if _, err := e.Client().Put(t.Context(), key, string(value)); err != nil {
		t.Fatal(err)
	}
	return was
}

// flip inverts all bytes except the first ones, which identify the encoding.
func flip(value []byte) {
	for i := 6; i < len(value); i++ {
		value[i] ^= 0xff
	}
}

// startIn starts a control plane on a data directory.
func startIn(t *testing.T, dir string) (s *server.Server, stop func()) {
	t.Helper()
	s, err := server.New(server.Options{DataDir: dir})
	if err == nil {
		err = s.Start(t.Context())
	}
	if err != nil {
		t.Fatal(err)
	}
	return s, func() {
		t.Helper()
		if err := s.Stop(context.Background()); err != nil {
			t.Error(err)
		}
	}
}

// TestStartNamesWhatCannotBeDecoded flips the bytes of objects that the start requires.
func TestStartNamesWhatCannotBeDecoded(t *testing.T) {
	t.Parallel()
	dir := filepath.Join(t.TempDir(), "data")
	s, stop := startIn(t, dir)
	client, err := apiextensions.NewForConfig(s.RESTConfig())
	if err != nil {
		t.Fatal(err)
	}
	_, err = client.CustomResourceDefinitions().Create(t.Context(),
		&apiextensionsv1.CustomResourceDefinition{
			ObjectMeta: metav1.ObjectMeta{Name: "shoes.example.com"},
			Spec: apiextensionsv1.CustomResourceDefinitionSpec{
				Group: "example.com", Scope: apiextensionsv1.ClusterScoped,
				Names: apiextensionsv1.CustomResourceDefinitionNames{Plural: "shoes", Kind: "Shoe"},
				Versions: []apiextensionsv1.CustomResourceDefinitionVersion{{
					Name: "v1", Served: true, Storage: true,
					Schema: &apiextensionsv1.CustomResourceValidation{
						OpenAPIV3Schema: &apiextensionsv1.JSONSchemaProps{Type: "object"},
					},
				}},
			},
		}, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	stop()
	for _, key := range []string{
		"/registry/namespaces/default",
		"/registry/apiregistration.k8s.io/apiservices/v1.",
		"/registry/apiextensions.k8s.io/customresourcedefinitions/shoes.example.com",
		"/registry/flowschemas/exempt",
		"/registry/clusterroles/admin",
		"/registry/roles/kube-system/extension-apiserver-authentication-reader",
		"/registry/services/specs/default/kubernetes",
		// read only by a control loop, but /readyz waits for its informer
		"/registry/servicecidrs/kubernetes",
	} {
		was := change(t, dir, key, flip)
		s, err := server.New(server.Options{DataDir: dir})
		if err != nil {
			t.Fatal(err)
		}
		began := time.Now()
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		err = s.Start(ctx)
		cancel()
		if took := time.Since(began); took > damageLimit {
			t.Errorf("%s: the start took %s", key, took)
		}
		if err == nil {
			t.Fatalf("%s: the server started", key)
		}
		if says := err.Error(); !strings.Contains(says, key+" (") ||
			!strings.Contains(says, "restore a copy") || strings.Contains(says, "\n") {
			t.Errorf("%s: got %q, want one line that names the key", key, err)
		}
		change(t, dir, key, func(value []byte) { copy(value, was) })
	}
	_, stop = startIn(t, dir)
	stop()
}

// TestStartsDespiteDamage flips the bytes of an object that the start does not require. As in
// kube-apiserver, objects of its kind can no longer be listed.
func TestStartsDespiteDamage(t *testing.T) {
	t.Parallel()
	dir := filepath.Join(t.TempDir(), "data")
	s, stop := startIn(t, dir)
	client := kubernetes.NewForConfigOrDie(s.RESTConfig())
	for _, name := range []string{"broken", "sound"} {
		secret := &corev1.Secret{
			ObjectMeta: metav1.ObjectMeta{Name: name},
			Data:       map[string][]byte{"of": []byte(name)},
		}
		if _, err := client.CoreV1().Secrets("default").Create(t.Context(), secret,
			metav1.CreateOptions{}); err != nil {
			t.Fatal(err)
		}
	}
	stop()
	change(t, dir, "/registry/secrets/default/broken", flip)
	s, stop = startIn(t, dir)
	defer stop()
	client = kubernetes.NewForConfigOrDie(s.RESTConfig())
	if list, err := client.CoreV1().Secrets("default").List(t.Context(),
		metav1.ListOptions{}); err == nil {
		t.Errorf("listed %d secrets, want an error", len(list.Items))
	}
	if _, err := client.CoreV1().Secrets("default").Get(t.Context(), "broken",
		metav1.GetOptions{}); err == nil {
		t.Error("read a secret that cannot be decoded")
	}
	if sound, err := client.CoreV1().Secrets("default").Get(t.Context(), "sound",
		metav1.GetOptions{}); err != nil || string(sound.Data["of"]) != "sound" {
		t.Errorf("read the undamaged secret: %v, %v", sound, err)
	}
}
