package apitest

import (
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"

	corev1 "k8s.io/api/core/v1"
	imagepolicyv1alpha1 "k8s.io/api/imagepolicy/v1alpha1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"

	"github.com/kinproc/kinproc/server"
)

// imagePolicyBackend allows images whose names begin with "good". For images whose names begin with
// "broken", it answers 502 Bad Gateway.
type imagePolicyBackend struct {
	asked atomic.Int32
	last  atomic.Pointer[imagepolicyv1alpha1.ImageReviewSpec]
}

func (b *imagePolicyBackend) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	b.asked.Add(1)
	var review imagepolicyv1alpha1.ImageReview
	if err := json.NewDecoder(r.Body).Decode(&review); err != nil || r.URL.Path != "/images" {
		http.Error(w, fmt.Sprint(r.URL, err), http.StatusBadRequest)
		return
	}
	b.last.Store(&review.Spec)
	review.Status.Allowed = true
	for _, c := range review.Spec.Containers {
		review.Status.Allowed = review.Status.Allowed && strings.HasPrefix(c.Image, "good")
		if strings.HasPrefix(c.Image, "broken") {
			http.Error(w, "broken", http.StatusBadGateway)
			return
		}
	}
	w.Header().Set("Content-Type", "application/json")
	_ = json.NewEncoder(w).Encode(review)
}

// startImagePolicyBackend starts a backend and returns it with the path of its kubeconfig file.
func startImagePolicyBackend(t *testing.T) (*imagePolicyBackend, string) {
	t.Helper()
	b := &imagePolicyBackend{}
	web := httptest.NewTLSServer(b)
	t.Cleanup(web.Close)
	file := filepath.Join(t.TempDir(), "backend")
	config := clientcmdapi.NewConfig()
	config.Clusters["c"] = &clientcmdapi.Cluster{
		Server:                web.URL + "/images",
		InsecureSkipTLSVerify: true,
	}
	config.Contexts["c"] = &clientcmdapi.Context{Cluster: "c"}
	config.CurrentContext = "c"
	if err := clientcmd.WriteToFile(*config, file); err != nil {
		t.Fatal(err)
	}
	return b, file
}

func TestAdmissionImagePolicyWebhook(t *testing.T) {
	t.Parallel()
	b, kubeconfig := startImagePolicyBackend(t)
	closed, err := configuredPlugin("ImagePolicyWebhook",
		fmt.Sprintf(`{"imagePolicy":{"kubeConfigFile":%q,"retryBackoff":1,"denyTTL":-1}}`,
			kubeconfig), nil)
	if err != nil {
		t.Fatal(err)
	}
	open, err := configuredPlugin("ImagePolicyWebhook",
		fmt.Sprintf("imagePolicy:\n  kubeConfigFile: %s\n  retryBackoff: 1\n  defaultAllow: true\n",
			kubeconfig), nil)
	if err != nil {
		t.Fatal(err)
	}
	pod := func(image string) *corev1.Pod {
		return newPod(func(p *corev1.Pod) {
			p.Annotations = map[string]string{"a": "b", "ticket.image-policy.k8s.io/number": "1"}
			p.Spec.Containers[0].Image = "good"
			p.Spec.InitContainers = []corev1.Container{{Name: "i", Image: image}}
		})
	}
	checkRefused(t, "good image", ask(t, closed, "pods", pod("good:1"), nil), false)
	if spec := b.last.Load(); len(spec.Containers) != 2 || len(spec.Annotations) != 1 ||
		spec.Namespace != "default" {
		t.Errorf("the backend received %+v", spec)
	}
	before := b.asked.Load()
	checkRefused(t, "good image again", ask(t, closed, "pods", pod("good:1"), nil), false)
	if after := b.asked.Load(); after != before {
		t.Errorf("the backend was asked %d more times about images it had allowed", after-before)
	}
	checkRefused(t, "bad image", ask(t, closed, "pods", pod("bad"), nil), true)
	before = b.asked.Load()
	checkRefused(t, "bad image again", ask(t, closed, "pods", pod("bad"), nil), true)
	if after := b.asked.Load(); after == before {
		t.Error("a denial was cached although denyTTL is -1")
	}
	checkRefused(t, "bad image on update", ask(t, closed, "pods", pod("bad"), pod("good")), true)
	checkRefused(t, "status of a bad image",
		ask(t, closed, "pods/status", pod("bad"), pod("bad")), false)
	debugged := pod("bad") // the pod exists, so only its ephemeral containers are reviewed
	debugged.Spec.EphemeralContainers = []corev1.EphemeralContainer{{
		EphemeralContainerCommon: corev1.EphemeralContainerCommon{Name: "e", Image: "good"},
	}}
	checkRefused(t, "good ephemeral container",
		ask(t, closed, "pods/ephemeralcontainers", debugged, pod("bad")), false)
	debugged.Spec.EphemeralContainers[0].Image = "bad"
	checkRefused(t, "bad ephemeral container",
		ask(t, closed, "pods/ephemeralcontainers", debugged, pod("bad")), true)
	checkRefused(t, "broken backend", ask(t, closed, "pods", pod("broken"), nil), true)
	checkRefused(t, "broken backend, allowed by default",
		ask(t, open, "pods", pod("broken"), nil), false)
	checkRefused(t, "bad image, allowed by default", ask(t, open, "pods", pod("bad"), nil), true)
}

func TestAdmissionImagePolicyWebhookConfiguration(t *testing.T) {
	t.Parallel()
	_, kubeconfig := startImagePolicyBackend(t)
	for config, ok := range map[string]bool{
		``:  false,
		`{`: false,
		`{"imagePolicy":{"kubeConfigFile":"/none"}}`:                                     false,
		fmt.Sprintf(`{"imagePolicy":{"kubeConfigFile":%q}}`, kubeconfig):                 true,
		fmt.Sprintf(`{"imagePolicy":{"kubeConfigFile":%q,"allowTTL":1}}`, kubeconfig):    false,
		fmt.Sprintf(`{"imagePolicy":{"kubeConfigFile":%q,"allowTTL":1800}}`, kubeconfig): true,
		fmt.Sprintf(`{"imagePolicy":{"kubeConfigFile":%q,"denyTTL":1801}}`, kubeconfig):  false,
		fmt.Sprintf(`{"imagePolicy":{"kubeConfigFile":%q,"denyTTL":-2}}`, kubeconfig):    false,
	} {
		if _, err := configuredPlugin("ImagePolicyWebhook", config, nil); (err == nil) != ok {
			t.Errorf("%s: got error %v, want accepted: %t", config, err, ok)
		}
	}
}

// TestAdmissionImagePolicyWebhookInServer configures the plugin with a file in the format that
// predates AdmissionConfiguration.
func TestAdmissionImagePolicyWebhookInServer(t *testing.T) {
	t.Parallel()
	_, kubeconfig := startImagePolicyBackend(t)
	file := filepath.Join(t.TempDir(), "admission.yaml")
	if err := os.WriteFile(file,
		[]byte("imagePolicy:\n  kubeConfigFile: "+kubeconfig+"\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	_, client := quiet(t, enable("ImagePolicyWebhook"), func(o *server.Options) {
		o.Admission.ConfigFile = file
		o.Admission.DisablePlugins = []string{"ServiceAccount"}
	})
	_, err := client.CoreV1().Pods("default").Create(t.Context(), newPod(), metav1.CreateOptions{})
	checkRefused(t, "bad image", err, true)
	_, err = client.CoreV1().Pods("default").Create(t.Context(), newPod(func(p *corev1.Pod) {
		p.Spec.Containers[0].Image = "good"
	}), metav1.CreateOptions{})
	checkRefused(t, "good image", err, false)
}
