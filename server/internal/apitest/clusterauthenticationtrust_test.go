package apitest

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/util/cert"

	"github.com/kinproc/kinproc/server"
	"github.com/kinproc/kinproc/server/internal/bootstrap/clusterauthenticationtrust"
	"github.com/kinproc/kinproc/server/servertest"
)

// TestClusterAuthenticationTrust changes the config map and the certificate authority that it
// publishes, on a control plane without other controllers.
func TestClusterAuthenticationTrust(t *testing.T) {
	t.Parallel()
	newCA := func() string {
		t.Helper()
		ca, _, err := cert.GenerateSelfSignedCertKey("ca.test", nil, nil)
		if err != nil {
			t.Fatal(err)
		}
		return string(ca)
	}
	caFile := filepath.Join(t.TempDir(), "ca.crt")
	first := newCA()
	if err := os.WriteFile(caFile, []byte(first), 0o600); err != nil {
		t.Fatal(err)
	}
	s := servertest.Run(t, servertest.WithoutControllers, func(o *server.Options) {
		o.ClientCAFile = caFile
	})
	configMaps := kubernetes.NewForConfigOrDie(s.RESTConfig()).CoreV1().
		ConfigMaps(metav1.NamespaceSystem)
	made, err := configMaps.Get(t.Context(), clusterauthenticationtrust.ConfigMap, metav1.GetOptions{})
	if err != nil {
		t.Fatalf("get the config map when the server is ready: %v", err)
	}
	for key, want := range map[string]string{
		"client-ca-file":                     first[:100],
		"requestheader-client-ca-file":       "-----BEGIN CERTIFICATE-----",
		"requestheader-allowed-names":        `["front-proxy-client"]`,
		"requestheader-username-headers":     `["X-Remote-User"]`,
		"requestheader-uid-headers":          `["X-Remote-Uid"]`,
		"requestheader-group-headers":        `["X-Remote-Group"]`,
		"requestheader-extra-headers-prefix": `["X-Remote-Extra-"]`,
	} {
		if !strings.Contains(made.Data[key], want) {
			t.Errorf("%s: %q, want %q", key, made.Data[key], want)
		}
	}

	options := metav1.SingleObject(metav1.ObjectMeta{Name: clusterauthenticationtrust.ConfigMap})
	list, err := configMaps.List(t.Context(), options)
	if err != nil {
		t.Fatal(err)
	}
	options.ResourceVersion = list.ResourceVersion
	w, err := configMaps.Watch(t.Context(), options)
	if err != nil {
		t.Fatal(err)
	}
	defer w.Stop()
	await := func(what string, wanted func(watch.Event, *corev1.ConfigMap) bool) {
		t.Helper()
		var last watch.Event
		timeout := time.After(90 * time.Second) // a change of the file is noticed within a minute
		for {
			select {
			case e, ok := <-w.ResultChan():
				if !ok {
					t.Fatalf("%s: the watch ended: %v", what, last)
				}
				last = e
				if c, ok := e.Object.(*corev1.ConfigMap); ok && wanted(e, c) {
					return
				}
			case <-timeout:
				t.Fatalf("timed out: the config map was not %s", what)
			}
		}
	}
	same := func(c *corev1.ConfigMap) bool {
		return c.Data["client-ca-file"] == made.Data["client-ca-file"] && len(c.Data) == len(made.Data)
	}

	if err := configMaps.Delete(t.Context(), made.Name, metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	var current *corev1.ConfigMap
	await("recreated", func(e watch.Event, c *corev1.ConfigMap) bool {
		current = c
		return e.Type == watch.Added && same(c)
	})
	edited := current.DeepCopy()
	edited.Data = map[string]string{"client-ca-file": "mine", "more": "of it"}
	if _, err := configMaps.Update(t.Context(), edited, metav1.UpdateOptions{}); err != nil {
		t.Fatal(err)
	}
	await("edited", func(_ watch.Event, c *corev1.ConfigMap) bool { return !same(c) })
	await("restored", func(_ watch.Event, c *corev1.ConfigMap) bool { return same(c) })

	second := newCA()
	if err := os.WriteFile(caFile, []byte(second), 0o600); err != nil {
		t.Fatal(err)
	}
	await("brought up to date with the file", func(_ watch.Event, c *corev1.ConfigMap) bool {
		return strings.Contains(c.Data["client-ca-file"], second[:100]) &&
			!strings.Contains(c.Data["client-ca-file"], first[:100])
	})
}
