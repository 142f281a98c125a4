package looptest

import (
	"errors"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"

	corev1 "k8s.io/api/core/v1"
	resourcev1 "k8s.io/api/resource/v1"
	storagev1 "k8s.io/api/storage/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"

	"github.com/kinproc/kinproc/server/internal/controllers/workloadtest"
)

// TestSchedulerErrors lets requests fail that follow from a decision.
func TestSchedulerErrors(t *testing.T) {
	t.Parallel()
	c := schedulerConnect(t)
	const name = "example.com/gpu"
	gpu := func(p *corev1.Pod) {
		p.Spec.Containers[0].Resources.Requests[name] = resource.MustParse("1")
		p.Spec.Containers[0].Resources.Limits = corev1.ResourceList{name: resource.MustParse("1")}
	}
	c.node("node", "4")
	c.slice("node", "a", "b")
	workloadtest.Must(c.ResourceV1().DeviceClasses().Create(t.Context(), &resourcev1.DeviceClass{
		ObjectMeta: metav1.ObjectMeta{Name: "gpus"},
		Spec:       resourcev1.DeviceClassSpec{ExtendedResourceName: new(name)},
	}, metav1.CreateOptions{}))(t)
	workloadtest.Must(c.StorageV1().StorageClasses().Create(t.Context(), &storagev1.StorageClass{
		ObjectMeta: metav1.ObjectMeta{Name: "late"}, Provisioner: "example.com/p",
		VolumeBindingMode: new(storagev1.VolumeBindingWaitForFirstConsumer),
	}, metav1.CreateOptions{}))(t)
	c.claim("volume", "late")

	var failing atomic.Pointer[string] // a method and a part of a path
	config := c.server.RESTConfig()
	config.Wrap(func(next http.RoundTripper) http.RoundTripper {
		return workloadtest.RoundTripper(func(r *http.Request) (*http.Response, error) {
			if wanted := failing.Load(); wanted != nil {
				method, part, _ := strings.Cut(*wanted, " ")
				if r.Method == method && strings.Contains(r.URL.Path, part) {
					return nil, errors.New("the connection is broken")
				}
			}
			return next.RoundTrip(r)
		})
	})
	client, err := kubernetes.NewForConfig(config)
	if err != nil {
		t.Fatal(err)
	}
	defer schedulerRun(t, client)()
	for _, test := range []struct {
		pod     string
		set     func(*corev1.Pod)
		failing string
		message string
	}{
		{"plain", func(*corev1.Pod) {}, "POST /plain/binding", `running Bind plugin "DefaultBinder": `},
		{
			"extended", gpu, "POST /resourceclaims",
			`running PreBind plugin "DynamicResources": create claim for extended resources default/: `,
		},
		{"unbound", gpu, "POST /unbound/binding", `running Bind plugin "DefaultBinder": `},
		{
			"volume", schedulerUsing("volume"), "PUT /persistentvolumeclaims",
			`running PreBind plugin "VolumeBinding": `,
		},
	} {
		failing.Store(&test.failing)
		c.pod(test.pod, "100m", test.set)
		c.await(test.pod, "told of an error", func(p *corev1.Pod) bool {
			condition := podCondition(p, corev1.PodScheduled)
			return condition.Reason == corev1.PodReasonSchedulerError && p.Spec.NodeName == "" &&
				p.Status.NominatedNodeName == "" && strings.HasPrefix(condition.Message, test.message)
		})
		failing.Store(nil)
		if test.pod == "volume" {
			c.await("volume", "nominated", func(p *corev1.Pod) bool {
				return p.Status.NominatedNodeName == "node"
			})
			continue
		}
		c.on(test.pod)
	}
	// The claim of an attempt in vain has been deleted.
	claims := workloadtest.Must(c.ResourceV1().ResourceClaims("default").List(t.Context(),
		metav1.ListOptions{}))(t)
	if len(claims.Items) != 2 {
		t.Errorf("two pods have %d claims", len(claims.Items))
	}
}
