package apitest

import (
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"

	"github.com/kinproc/kinproc/server/servertest"
)

// TestAdmissionOffByDefault enables plugins that are off by default.
func TestAdmissionOffByDefault(t *testing.T) {
	t.Parallel()
	s := servertest.Run(t, enable("NamespaceAutoProvision", "LimitPodHardAntiAffinityTopology",
		"AlwaysPullImages", "PodNodeSelector", "PodTolerationRestriction", "ExtendedResourceToleration",
		"DenyServiceExternalIPs", "OwnerReferencesPermissionEnforcement"))
	client, err := kubernetes.NewForConfig(s.RESTConfig())
	if err != nil {
		t.Fatal(err)
	}
	ctx := t.Context()
	must(client.CoreV1().Namespaces().Create(ctx, &corev1.Namespace{
		ObjectMeta: metav1.ObjectMeta{Name: "restricted", Annotations: map[string]string{
			"scheduler.alpha.kubernetes.io/node-selector":      "zone=a",
			"scheduler.alpha.kubernetes.io/defaultTolerations": `[{"key":"given","operator":"Exists"}]`,
			"scheduler.alpha.kubernetes.io/tolerationsWhitelist": `[
				{"key":"given","operator":"Exists"},{"operator":"Exists","effect":"NoExecute"},
				{"key":"example.com/gpu","operator":"Exists"}]`,
		}},
	}, metav1.CreateOptions{}))(t)
	tolerates := func(p *corev1.Pod, key string) bool {
		return slices.ContainsFunc(p.Spec.Tolerations, func(t corev1.Toleration) bool {
			return t.Key == key
		})
	}
	for name, c := range map[string]struct {
		change  func(*corev1.Pod)
		refused string
		look    func(*corev1.Pod) bool
	}{
		"pull": {look: func(p *corev1.Pod) bool {
			return p.Spec.Containers[0].ImagePullPolicy == corev1.PullAlways
		}},
		"selector": {look: func(p *corev1.Pod) bool {
			return p.Spec.NodeSelector["zone"] == "a"
		}},
		"selector-own": {
			change: func(p *corev1.Pod) { p.Spec.NodeSelector = map[string]string{"disk": "b"} },
			look:   func(p *corev1.Pod) bool { return len(p.Spec.NodeSelector) == 2 },
		},
		"selector-contradicts": {
			change:  func(p *corev1.Pod) { p.Spec.NodeSelector = map[string]string{"zone": "b"} },
			refused: "spec.nodeSelector",
		},
		"toleration": {look: func(p *corev1.Pod) bool { return tolerates(p, "given") }},
		"extended-resource": {
			change: func(p *corev1.Pod) {
				p.Spec.Containers[0].Resources = corev1.ResourceRequirements{
					Requests: quantities("example.com/gpu", "1"),
					Limits:   quantities("example.com/gpu", "1"),
				}
			},
			look: func(p *corev1.Pod) bool { return tolerates(p, "example.com/gpu") },
		},
		"anti-affinity-host": {
			change: antiAffinityTo("kubernetes.io/hostname"),
			look:   func(*corev1.Pod) bool { return true },
		},
		"anti-affinity-zone": {change: antiAffinityTo("zone"), refused: "topology key"},
		"owner-unknown-kind": {
			change: func(p *corev1.Pod) {
				p.OwnerReferences = []metav1.OwnerReference{{
					APIVersion:         "example.com/v1",
					Kind:               "Nothing",
					Name:               "x",
					UID:                "x",
					BlockOwnerDeletion: new(true),
				}}
			},
			refused: "blockOwnerDeletion",
		},
	} {
		t.Run(name, func(t *testing.T) {
			pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: corev1.PodSpec{
				Containers: []corev1.Container{{Name: "c", Image: "i:1", ImagePullPolicy: corev1.PullNever}},
			}}
			if c.change != nil {
				c.change(pod)
			}
			got, err := client.CoreV1().Pods("restricted").Create(ctx, pod, metav1.CreateOptions{})
			switch {
			case c.refused != "" &&
				(!apierrors.IsForbidden(err) || !strings.Contains(err.Error(), c.refused)):
				t.Errorf("got error %v, want Forbidden with %q", err, c.refused)
			case c.refused == "" && err != nil:
				t.Error(err)
			case c.refused == "" && !c.look(got):
				t.Errorf("unexpected pod spec: %+v", got.Spec)
			}
		})
	}

	must(client.CoreV1().ConfigMaps("provided").Create(ctx,
		&corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: "x"}}, metav1.CreateOptions{}))(t)
	must(client.CoreV1().Namespaces().Get(ctx, "provided", metav1.GetOptions{}))(t)

	service := &corev1.Service{
		ObjectMeta: metav1.ObjectMeta{Name: "s"},
		Spec:       corev1.ServiceSpec{Ports: []corev1.ServicePort{{Port: 80}}},
	}
	service = must(client.CoreV1().Services("default").Create(ctx, service, metav1.CreateOptions{}))(t)
	service.Spec.ExternalIPs = []string{"192.0.2.1"}
	if _, err := client.CoreV1().Services("default").Update(ctx, service,
		metav1.UpdateOptions{}); !apierrors.IsForbidden(err) {
		t.Errorf("add an external IP to a service: got %v, want Forbidden", err)
	}
}

func antiAffinityTo(topology string) func(*corev1.Pod) {
	return func(p *corev1.Pod) {
		p.Spec.Affinity = &corev1.Affinity{PodAntiAffinity: &corev1.PodAntiAffinity{
			RequiredDuringSchedulingIgnoredDuringExecution: []corev1.PodAffinityTerm{{
				LabelSelector: &metav1.LabelSelector{MatchLabels: map[string]string{"a": "b"}},
				TopologyKey:   topology,
			}},
		}}
	}
}
