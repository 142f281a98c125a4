package apitest

import (
	"encoding/json"
	"fmt"
	"net/http"
	"net/url"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"

	"github.com/kinproc/kinproc/server"
	"github.com/kinproc/kinproc/server/internal/dashboard"
	"github.com/kinproc/kinproc/server/servertest"
)

// ofPod is the query for a pod, with more parameters.
func ofPod(name string, more ...string) url.Values {
	q := ofObject("", "pods", "default", name)
	for i := 0; i < len(more); i += 2 {
		q.Set(more[i], more[i+1])
	}
	return q
}

func TestDashboardLogs(t *testing.T) {
	t.Parallel()
	s := servertest.Run(t, servertest.Workloads)
	p := openDashboard(t, s, dashboard.Options{})
	pods := kubernetes.NewForConfigOrDie(s.RESTConfig()).CoreV1().Pods("default")
	talks := namedPod("talks")
	talks.Annotations = map[string]string{
		"kinproc.dev/log.main": "line {n}", "kinproc.dev/log-rate.main": "50",
		"kinproc.dev/log.side": strings.Repeat("long ", 2000) + "\nlast",
	}
	side := corev1.Container{Name: "side", Image: "image"}
	talks.Spec.Containers = append(talks.Spec.Containers, side)
	crashes := namedPod("crashes")
	crashes.Annotations = map[string]string{
		"kinproc.dev/log": "before the crash", "kinproc.dev/crash-loop": "true",
		"kinproc.dev/back-off": "10ms",
	}
	for _, pod := range []*corev1.Pod{talks, crashes} {
		if _, err := pods.Create(t.Context(), pod, metav1.CreateOptions{}); err != nil {
			t.Fatal(err)
		}
	}
	objects := p.events("/objects?only=1&" + ofPod("talks").Encode())
	if one := objects("object", hasText("phase: Running")); !strings.Contains(one,
		`"containers":["main","side"]`) {
		t.Errorf("the pod has no containers: %s", one)
	}
	// Lines arrive while they are written.
	follow, leave := p.stream("/logs?" + ofPod("talks", "container", "main", "follow", "true").Encode())
	first := follow("lines", hasText("line "))
	var had []string
	if err := json.Unmarshal([]byte(first), &had); err != nil {
		t.Fatal(err)
	}
	var n int
	if _, err := fmt.Sscanf(had[len(had)-1], "line %d", &n); err != nil {
		t.Fatalf("the first lines are %s: %v", first, err)
	}
	follow("lines", hasText(fmt.Sprintf(`"line %d"`, n+60)))
	leave()
	// Without follow, the stream ends. A long line is cut.
	side2 := p.events("/logs?" + ofPod("talks", "container", "side").Encode())
	if lines := side2("lines", hasText("last")); len(lines) > 5000 || !strings.Contains(lines, "…") {
		t.Errorf("a long line has %d bytes", len(lines))
	}
	side2("ended", func(data string) bool { return data == `""` })
	await(t, "the pod has crashed twice", func() bool {
		pod, err := pods.Get(t.Context(), "crashes", metav1.GetOptions{})
		return err == nil && pod.Status.ContainerStatuses[0].RestartCount > 1
	})
	p.events("/logs?"+ofPod("crashes", "previous", "true").Encode())("lines",
		hasText("before the crash"))
	p.events("/logs?"+ofPod("talks", "container", "nobody").Encode())("ended",
		hasText("The log cannot be read: "))
	for _, query := range []string{
		"version=v1&resource=pods", "version=v1&resource=secrets&name=a",
		"version=v1&resource=pods&name=a/../b",
	} {
		if code, body := p.get("/logs?" + query); code != http.StatusBadRequest {
			t.Errorf("%s got %d: %s", query, code, body)
		}
	}
	p.events("/logs?"+ofPod("talks", "container", "main", "follow", "true").Encode())("lines",
		hasText("line"))
	p.stop() // fails the test if the stream goes on
}

func TestDashboardUsage(t *testing.T) {
	t.Parallel()
	s := servertest.Run(t, servertest.Workloads, func(o *server.Options) {
		o.SimulatedMetrics = true
	})
	p := openDashboard(t, s, dashboard.Options{})
	pods := kubernetes.NewForConfigOrDie(s.RESTConfig()).CoreV1().Pods("default")
	busy := namedPod("busy")
	busy.Annotations = map[string]string{"kinproc.dev/cpu": "250m", "kinproc.dev/memory": "64Mi"}
	busy.Spec.Containers = append(busy.Spec.Containers, corev1.Container{
		Name: "side", Image: "image", Resources: corev1.ResourceRequirements{
			Requests: corev1.ResourceList{corev1.ResourceCPU: resource.MustParse("1")},
		},
	})
	if _, err := pods.Create(t.Context(), busy, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	type usages struct {
		Served bool
		List   []struct {
			Inside, Name string
			CPU, Memory  int64
		}
	}
	for name, query := range map[string]url.Values{
		"one":  ofPod("busy"),
		"list": {"version": {"v1"}, "resource": {"pods"}, "namespace": {"default"}},
	} {
		var u usages
		await(t, "the pod uses something", func() bool {
			u = read[usages](p, "/usage", query)
			return u.Served && len(u.List) == 1 && u.List[0].CPU > 0
		})
		// Both containers together.
		if got := u.List[0]; got.Name != "busy" || got.Inside != "default" || got.CPU != 500 ||
			got.Memory != 128<<20 {
			t.Errorf("%s: the pod uses %+v", name, got)
		}
	}
	nodes := read[usages](p, "/usage", url.Values{"version": {"v1"}, "resource": {"nodes"}})
	if len(nodes.List) != 1 || nodes.List[0].CPU < 500 {
		t.Errorf("the nodes use %+v", nodes)
	}
	if code, _ := p.get("/usage?version=v1&resource=secrets"); code != http.StatusBadRequest {
		t.Errorf("what secrets use got %d", code)
	}
}

// Without metrics, there are none, and that is no failure.
func TestDashboardUsageWithoutMetrics(t *testing.T) {
	t.Parallel()
	s, _ := shared(t)
	p := openDashboard(t, s, dashboard.Options{})
	query := url.Values{"version": {"v1"}, "resource": {"pods"}}
	if u := read[struct{ Served bool }](p, "/usage", query); u.Served {
		t.Error("metrics are served")
	}
}
