package apitest

import (
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
)

// limitRange creates a limit range in a new namespace and returns the namespace's name.
func limitRange(t *testing.T, client kubernetes.Interface, items ...corev1.LimitRangeItem) string {
	t.Helper()
	ns := must(client.CoreV1().Namespaces().Create(t.Context(), &corev1.Namespace{
		ObjectMeta: metav1.ObjectMeta{GenerateName: "limited-"},
	}, metav1.CreateOptions{}))(t).Name
	must(client.CoreV1().LimitRanges(ns).Create(t.Context(), &corev1.LimitRange{
		ObjectMeta: metav1.ObjectMeta{Name: "limits"}, Spec: corev1.LimitRangeSpec{Limits: items},
	}, metav1.CreateOptions{}))(t)
	return ns
}

func TestAdmissionLimitRangerDefaults(t *testing.T) {
	t.Parallel()
	s, _ := shared(t)
	client := kubernetes.NewForConfigOrDie(s.RESTConfig())
	p := newPlugin(t, "LimitRanger", client)
	ns := limitRange(t, client, corev1.LimitRangeItem{
		Type:           corev1.LimitTypeContainer,
		DefaultRequest: quantities("cpu", "100m", "memory", "1Mi"),
		Default:        quantities("cpu", "200m", "memory", "2Mi"),
	})
	for name, c := range map[string]struct {
		pod        *corev1.Pod
		annotation string
	}{
		"all": {
			newPod(),
			"LimitRanger plugin set: cpu, memory request for container c; cpu, memory limit for container c",
		},
		"some": {
			newPod(requests("cpu", "1"), limits("cpu", "1")),
			"LimitRanger plugin set: memory request for container c; memory limit for container c",
		},
		"none": {newPod(requests("cpu", "1", "memory", "1Mi"), limits("cpu", "1", "memory", "1Mi")), ""},
		"init": {newPod(requests("cpu", "1", "memory", "1Mi"), limits("cpu", "1"), func(p *corev1.Pod) {
			p.Spec.InitContainers = []corev1.Container{{Name: "i"}}
		}), "LimitRanger plugin set: memory limit for container c; cpu, memory " +
			"request for init container i; cpu, memory limit for init container i"},
	} {
		c.pod.Namespace = ns
		if err := ask(t, p, "pods", c.pod, nil); err != nil ||
			c.pod.Annotations["kubernetes.io/limit-ranger"] != c.annotation {
			t.Errorf("%s: %v, the annotation is %q, want %q",
				name, err, c.pod.Annotations["kubernetes.io/limit-ranger"], c.annotation)
		}
		if got := c.pod.Spec.Containers[0].Resources.Limits.Memory(); got.IsZero() {
			t.Errorf("%s: no memory limit was set", name)
		}
	}
	for resource, filled := range map[string]bool{
		"pods":        false,
		"pods/status": false,
		"pods/resize": true,
	} {
		pod := newPod(func(p *corev1.Pod) { p.Namespace = ns })
		if err := ask(t, p, resource, pod, newPod()); err != nil ||
			(pod.Spec.Containers[0].Resources.Limits != nil) != filled {
			t.Errorf("update of %s: %v, got resources %v, want defaults: %t",
				resource, err, pod.Spec.Containers[0].Resources, filled)
		}
	}
}

func TestAdmissionLimitRangerBounds(t *testing.T) {
	t.Parallel()
	s, _ := shared(t)
	client := kubernetes.NewForConfigOrDie(s.RESTConfig())
	p := newPlugin(t, "LimitRanger", client)
	container := limitRange(t, client, corev1.LimitRangeItem{
		Type: corev1.LimitTypeContainer,
		Min:  quantities("cpu", "100m"),
		Max:  quantities("cpu", "1"),
	})
	ratio := limitRange(t, client, corev1.LimitRangeItem{
		Type:                 corev1.LimitTypeContainer,
		MaxLimitRequestRatio: quantities("cpu", "3"),
	})
	whole := limitRange(t, client,
		corev1.LimitRangeItem{Type: corev1.LimitTypePod, Max: quantities("cpu", "2")})
	second := func(c corev1.Container) func(*corev1.Pod) {
		return func(p *corev1.Pod) {
			c.Name, c.Resources = "second", p.Spec.Containers[0].Resources
			if c.RestartPolicy != nil || c.Image == "init" {
				p.Spec.InitContainers = append(p.Spec.InitContainers, c)
			} else {
				p.Spec.Containers = append(p.Spec.Containers, c)
			}
		}
	}
	for name, c := range map[string]struct {
		namespace string
		pod       *corev1.Pod
		refused   bool
	}{
		"within":            {container, newPod(requests("cpu", "100m"), limits("cpu", "1")), false},
		"request too small": {container, newPod(requests("cpu", "99m"), limits("cpu", "1")), true},
		"limit too small":   {container, newPod(requests("cpu", "100m"), limits("cpu", "99m")), true},
		"limit too big":     {container, newPod(requests("cpu", "100m"), limits("cpu", "1001m")), true},
		"request too big":   {container, newPod(requests("cpu", "1001m"), limits("cpu", "1")), true},
		"init container": {container, newPod(requests("cpu", "2"), limits("cpu", "2"),
			second(corev1.Container{Image: "init"}), requests("cpu", "1"), limits("cpu", "1")), true},

		"ratio":         {ratio, newPod(requests("cpu", "300m"), limits("cpu", "900m")), false},
		"ratio too big": {ratio, newPod(requests("cpu", "300m"), limits("cpu", "901m")), true},
		"no ratio":      {ratio, newPod(limits("cpu", "1")), true},
		"zero":          {ratio, newPod(requests("cpu", "0"), limits("cpu", "1")), true},

		"pod within":     {whole, newPod(limits("cpu", "2")), false},
		"two containers": {whole, newPod(limits("cpu", "1500m"), second(corev1.Container{})), true},
		"one after one": {
			whole, newPod(limits("cpu", "1500m"), second(corev1.Container{Image: "init"})), false,
		},
		"with a sidecar": {whole, newPod(limits("cpu", "1500m"), second(corev1.Container{
			RestartPolicy: new(corev1.ContainerRestartPolicyAlways),
		})), true},
		"overhead": {whole, newPod(limits("cpu", "2"), func(p *corev1.Pod) {
			p.Spec.Overhead = quantities("cpu", "1")
		}), false},
		"pod has no limit": {whole, newPod(), true},
		"pod level": {whole, newPod(limits("cpu", "1"), func(p *corev1.Pod) {
			p.Spec.Resources = &corev1.ResourceRequirements{Limits: quantities("cpu", "3")}
		}), true},
	} {
		c.pod.Namespace = c.namespace
		checkRefused(t, name, ask(t, p, "pods", c.pod.DeepCopy(), nil), c.refused)
		checkRefused(t, name+", resized", ask(t, p, "pods/resize", c.pod.DeepCopy(), newPod()), c.refused)
		checkRefused(t, name+", updated", ask(t, p, "pods", c.pod.DeepCopy(), newPod()), false)
	}

	space := limitRange(t, client, corev1.LimitRangeItem{
		Type: corev1.LimitTypePersistentVolumeClaim,
		Min:  quantities("storage", "1Gi"),
		Max:  quantities("storage", "2Gi"),
	})
	claim := func(size string) *corev1.PersistentVolumeClaim {
		return &corev1.PersistentVolumeClaim{
			ObjectMeta: metav1.ObjectMeta{Name: "x", Namespace: space},
			Spec: corev1.PersistentVolumeClaimSpec{
				Resources: corev1.VolumeResourceRequirements{Requests: quantities("storage", size)},
			},
		}
	}
	leaving := claim("3Gi")
	leaving.DeletionTimestamp = &metav1.Time{}
	checkRefused(t, "claim", ask(t, p, "persistentvolumeclaims", claim("2Gi"), nil), false)
	checkRefused(t, "small claim", ask(t, p, "persistentvolumeclaims", claim("1Mi"), nil), true)
	checkRefused(t, "big claim", ask(t, p, "persistentvolumeclaims", claim("3Gi"), nil), true)
	checkRefused(t, "claim grows",
		ask(t, p, "persistentvolumeclaims", claim("3Gi"), claim("1Gi")), true)
	checkRefused(t, "claim goes", ask(t, p, "persistentvolumeclaims", claim("3Gi"), leaving), false)
}
