package admission_test

import (
	"context"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/kubernetes"

	"github.com/kinproc/kinproc/server"
	"github.com/kinproc/kinproc/server/admission"
	"github.com/kinproc/kinproc/server/servertest"
)

// TestOffByDefault switches plugins on that are off by default.
func TestOffByDefault(t *testing.T) {
	t.Parallel()
	s := servertest.Run(t, func(o *server.Options) {
		o.Admission = admission.NewOptions()
		o.Admission.EnablePlugins = []string{
			"NamespaceAutoProvision", "LimitPodHardAntiAffinityTopology", "AlwaysPullImages", "PodNodeSelector", "PodTolerationRestriction",
			"ExtendedResourceToleration", "DenyServiceExternalIPs", "OwnerReferencesPermissionEnforcement",
		}
	})
	client, err := kubernetes.NewForConfig(s.RESTConfig())
	if err != nil {
		t.Fatal(err)
	}
	ctx := t.Context()
	must(client.CoreV1().Namespaces().Create(ctx, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "restricted", Annotations: map[string]string{
		"scheduler.alpha.kubernetes.io/node-selector":        "zone=a",
		"scheduler.alpha.kubernetes.io/defaultTolerations":   `[{"key":"given","operator":"Exists"}]`,
		"scheduler.alpha.kubernetes.io/tolerationsWhitelist": `[{"key":"given","operator":"Exists"},{"operator":"Exists","effect":"NoExecute"},{"key":"example.com/gpu","operator":"Exists"},{"key":"node.kubernetes.io/memory-pressure","operator":"Exists"}]`,
	}}}, metav1.CreateOptions{}))(t)
	tolerates := func(p *corev1.Pod, key string) bool {
		return slices.ContainsFunc(p.Spec.Tolerations, func(t corev1.Toleration) bool { return t.Key == key })
	}
	for name, c := range map[string]struct {
		change  func(*corev1.Pod)
		refused string
		look    func(*corev1.Pod) bool
	}{
		"pull":                 {look: func(p *corev1.Pod) bool { return p.Spec.Containers[0].ImagePullPolicy == corev1.PullAlways }},
		"selector":             {look: func(p *corev1.Pod) bool { return p.Spec.NodeSelector["zone"] == "a" }},
		"selector-own":         {change: func(p *corev1.Pod) { p.Spec.NodeSelector = map[string]string{"disk": "b"} }, look: func(p *corev1.Pod) bool { return len(p.Spec.NodeSelector) == 2 }},
		"selector-contradicts": {change: func(p *corev1.Pod) { p.Spec.NodeSelector = map[string]string{"zone": "b"} }, refused: "spec.nodeSelector"},
		"toleration":           {look: func(p *corev1.Pod) bool { return tolerates(p, "given") }},
		"toleration-forbidden": {
			change: func(p *corev1.Pod) {
				p.Spec.Tolerations = []corev1.Toleration{{Key: "other", Operator: corev1.TolerationOpExists}}
			},
			refused: "spec.tolerations",
		},
		"extended-resource": {
			change: func(p *corev1.Pod) {
				p.Spec.Containers[0].Resources = corev1.ResourceRequirements{Requests: quantities("example.com/gpu", "1"), Limits: quantities("example.com/gpu", "1")}
			},
			look: func(p *corev1.Pod) bool {
				return tolerates(p, "example.com/gpu") && tolerates(p, "node.kubernetes.io/memory-pressure")
			},
		},
		"anti-affinity-host": {change: antiAffinityTo("kubernetes.io/hostname"), look: func(*corev1.Pod) bool { return true }},
		"anti-affinity-zone": {change: antiAffinityTo("zone"), refused: "topology key"},
		"owner-unknown-kind": {
			change: func(p *corev1.Pod) {
				p.OwnerReferences = []metav1.OwnerReference{{APIVersion: "example.com/v1", Kind: "Nothing", Name: "x", UID: "x", BlockOwnerDeletion: new(true)}}
			},
			refused: "blockOwnerDeletion",
		},
	} {
		t.Run(name, func(t *testing.T) {
			pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: corev1.PodSpec{Containers: []corev1.Container{{Name: "c", Image: "i:1", ImagePullPolicy: corev1.PullNever}}}}
			if c.change != nil {
				c.change(pod)
			}
			got, err := client.CoreV1().Pods("restricted").Create(ctx, pod, metav1.CreateOptions{})
			switch {
			case c.refused != "" && (!apierrors.IsForbidden(err) || !strings.Contains(err.Error(), c.refused)):
				t.Errorf("error is %v, not a refusal with %q", err, c.refused)
			case c.refused == "" && err != nil:
				t.Error(err)
			case c.refused == "" && !c.look(got):
				t.Errorf("not as it should be: %+v", got.Spec)
			}
		})
	}

	must(client.CoreV1().ConfigMaps("provided").Create(ctx, &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: "x"}}, metav1.CreateOptions{}))(t)
	must(client.CoreV1().Namespaces().Get(ctx, "provided", metav1.GetOptions{}))(t)

	service := &corev1.Service{ObjectMeta: metav1.ObjectMeta{Name: "s"}, Spec: corev1.ServiceSpec{Ports: []corev1.ServicePort{{Port: 80}}}}
	service = must(client.CoreV1().Services("default").Create(ctx, service, metav1.CreateOptions{}))(t)
	service.Spec.ExternalIPs = []string{"192.0.2.1"}
	if _, err := client.CoreV1().Services("default").Update(ctx, service, metav1.UpdateOptions{}); !apierrors.IsForbidden(err) {
		t.Errorf("a service with external IP: %v", err)
	}
}

func antiAffinityTo(topology string) func(*corev1.Pod) {
	return func(p *corev1.Pod) {
		p.Spec.Affinity = &corev1.Affinity{PodAntiAffinity: &corev1.PodAntiAffinity{RequiredDuringSchedulingIgnoredDuringExecution: []corev1.PodAffinityTerm{{
			LabelSelector: &metav1.LabelSelector{MatchLabels: map[string]string{"a": "b"}}, TopologyKey: topology,
		}}}}
	}
}

// TestUpdates changes what has been admitted already: claims grow, pods are resized, a quota is charged.
func TestUpdates(t *testing.T) {
	t.Parallel()
	client, ctx := connect(t), t.Context()
	for name, grows := range map[string]bool{"grows": true, "stays": false} {
		must(client.StorageV1().StorageClasses().Create(ctx, &storagev1.StorageClass{
			ObjectMeta: metav1.ObjectMeta{Name: name}, Provisioner: "example.com/p", AllowVolumeExpansion: &grows,
		}, metav1.CreateOptions{}))(t)
	}
	claims := client.CoreV1().PersistentVolumeClaims("default")
	for name, c := range map[string]struct {
		class, phase string
		allowed      bool
	}{"bound": {"grows", "Bound", true}, "unbound": {"grows", "Pending", false}, "fixed": {"stays", "Bound", false}} {
		must(claims.Create(ctx, &corev1.PersistentVolumeClaim{
			ObjectMeta: metav1.ObjectMeta{Name: name},
			Spec: corev1.PersistentVolumeClaimSpec{
				AccessModes: []corev1.PersistentVolumeAccessMode{corev1.ReadWriteOnce}, StorageClassName: &c.class, VolumeName: "v",
				Resources: corev1.VolumeResourceRequirements{Requests: quantities("storage", "1Gi")},
			},
		}, metav1.CreateOptions{}))(t)
		must(claims.Patch(ctx, name, types.MergePatchType, []byte(`{"status":{"phase":"`+c.phase+`","capacity":{"storage":"1Gi"}}}`), metav1.PatchOptions{}, "status"))(t)
		_, err := claims.Patch(ctx, name, types.MergePatchType, []byte(`{"spec":{"resources":{"requests":{"storage":"2Gi"}}}}`), metav1.PatchOptions{})
		if c.allowed && err != nil || !c.allowed && err == nil {
			t.Errorf("claim %s: %v", name, err)
		}
	}

	pods := client.CoreV1().Pods("default")
	must(pods.Create(ctx, &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "p"}, Spec: corev1.PodSpec{Containers: []corev1.Container{{
		Name: "c", Image: "i", Resources: corev1.ResourceRequirements{Requests: quantities("cpu", "100m"), Limits: quantities("cpu", "200m")},
	}}}}, metav1.CreateOptions{}))(t)
	must(client.CoreV1().LimitRanges("default").Create(ctx, &corev1.LimitRange{
		ObjectMeta: metav1.ObjectMeta{Name: "limits"},
		Spec:       corev1.LimitRangeSpec{Limits: []corev1.LimitRangeItem{{Type: corev1.LimitTypeContainer, Max: quantities("cpu", "1")}}},
	}, metav1.CreateOptions{}))(t)
	for cpu, allowed := range map[string]bool{"1": true, "2": false} {
		_, err := pods.Patch(ctx, "p", types.StrategicMergePatchType, []byte(`{"spec":{"containers":[{"name":"c","resources":{"limits":{"cpu":"`+cpu+`"}}}]}}`), metav1.PatchOptions{}, "resize")
		if allowed && err != nil || !allowed && !apierrors.IsForbidden(err) {
			t.Errorf("resize to %s: %v", cpu, err)
		}
	}

	// Nobody counts what is used already, but whoever writes status.hard has the quota enforced.
	quotas := client.CoreV1().ResourceQuotas("default")
	quota := must(quotas.Create(ctx, &corev1.ResourceQuota{
		ObjectMeta: metav1.ObjectMeta{Name: "q"}, Spec: corev1.ResourceQuotaSpec{Hard: quantities("count/secrets", "1")},
	}, metav1.CreateOptions{}))(t)
	quota.Status = corev1.ResourceQuotaStatus{Hard: quantities("count/secrets", "1"), Used: quantities("count/secrets", "0")}
	must(quotas.UpdateStatus(ctx, quota, metav1.UpdateOptions{}))(t)
	err := wait.PollUntilContextTimeout(ctx, 10*time.Millisecond, 30*time.Second, true, func(ctx context.Context) (bool, error) { // the plugin learns of it by a watch
		_, err := client.CoreV1().Secrets("default").Create(ctx, &corev1.Secret{ObjectMeta: metav1.ObjectMeta{GenerateName: "s-"}}, metav1.CreateOptions{})
		if apierrors.IsForbidden(err) {
			return true, nil
		}
		return false, err
	})
	if err != nil {
		t.Errorf("secrets are created beyond the quota, which says %+v: %v", must(quotas.Get(ctx, "q", metav1.GetOptions{}))(t).Status, err)
	}
}
