package apitest

import (
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	nodev1 "k8s.io/api/node/v1"
	schedulingv1 "k8s.io/api/scheduling/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/client-go/kubernetes"

	"github.com/kinproc/kinproc/server/internal/admission"
	"github.com/kinproc/kinproc/server/servertest"
)

func quantities(pairs ...string) corev1.ResourceList {
	list := corev1.ResourceList{}
	for i := 0; i < len(pairs); i += 2 {
		list[corev1.ResourceName(pairs[i])] = resource.MustParse(pairs[i+1])
	}
	return list
}

// TestAdmissionPods creates pods in a namespace with limits, in a cluster with a priority class and
// a runtime class.
func TestAdmissionPods(t *testing.T) {
	t.Parallel()
	client, ctx := kubernetes.NewForConfigOrDie(servertest.Run(t).RESTConfig()), t.Context()
	ns :=
		must(client.CoreV1().Namespaces().Create(ctx, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{
			GenerateName: "test-",
			Labels:       map[string]string{"pod-security.kubernetes.io/enforce": "baseline"},
		}}, metav1.CreateOptions{}))(t).Name
	must(client.SchedulingV1().PriorityClasses().Create(ctx, &schedulingv1.PriorityClass{
		ObjectMeta: metav1.ObjectMeta{Name: "usual"}, Value: 7, GlobalDefault: true,
	}, metav1.CreateOptions{}))(t)
	must(client.NodeV1().RuntimeClasses().Create(ctx, &nodev1.RuntimeClass{
		ObjectMeta: metav1.ObjectMeta{Name: "sandbox"}, Handler: "sandbox",
		Overhead: &nodev1.Overhead{PodFixed: quantities("memory", "10Mi")},
		Scheduling: &nodev1.Scheduling{
			NodeSelector: map[string]string{"sandbox": "yes"},
			Tolerations:  []corev1.Toleration{{Key: "sandbox", Operator: corev1.TolerationOpExists}},
		},
	}, metav1.CreateOptions{}))(t)
	must(client.CoreV1().LimitRanges(ns).Create(ctx, &corev1.LimitRange{
		ObjectMeta: metav1.ObjectMeta{Name: "limits"},
		Spec: corev1.LimitRangeSpec{Limits: []corev1.LimitRangeItem{{
			Type:                 corev1.LimitTypeContainer,
			DefaultRequest:       quantities("cpu", "100m"),
			Default:              quantities("cpu", "200m"),
			Max:                  quantities("cpu", "1"),
			MaxLimitRequestRatio: quantities("cpu", "4"),
		}}},
	}, metav1.CreateOptions{}))(t)

	for name, c := range map[string]struct {
		change func(*corev1.Pod)
		// refused is a substring of the expected error. If it is empty, the pod is created and
		// checked with look.
		refused string
		look    func(*corev1.Pod) bool
	}{
		"priority": {look: func(p *corev1.Pod) bool {
			return *p.Spec.Priority == 7 && p.Spec.PriorityClassName == "usual"
		}},
		"system-priority": {
			change: func(p *corev1.Pod) { p.Spec.PriorityClassName = "system-node-critical" },
			look:   func(p *corev1.Pod) bool { return *p.Spec.Priority == 2000001000 },
		},
		"priority-unknown": {
			change:  func(p *corev1.Pod) { p.Spec.PriorityClassName = "none" },
			refused: "no PriorityClass with name none was found",
		},
		"priority-different": {
			change:  func(p *corev1.Pod) { p.Spec.Priority = new(int32(8)) },
			refused: "spec.priority is 8",
		},
		"toleration-seconds": {look: func(p *corev1.Pod) bool {
			return len(p.Spec.Tolerations) == 2 && *p.Spec.Tolerations[0].TolerationSeconds == 300
		}},
		"toleration-own": {
			change: func(p *corev1.Pod) {
				p.Spec.Tolerations = []corev1.Toleration{{Operator: corev1.TolerationOpExists}}
			},
			look: func(p *corev1.Pod) bool { return len(p.Spec.Tolerations) == 1 },
		},
		"limit-defaults": {look: func(p *corev1.Pod) bool {
			r := p.Spec.Containers[0].Resources
			return r.Requests.Cpu().String() == "100m" && r.Limits.Cpu().String() == "200m" &&
				p.Annotations["kubernetes.io/limit-ranger"] != ""
		}},
		"limit-max": {
			change:  func(p *corev1.Pod) { p.Spec.Containers[0].Resources.Limits = quantities("cpu", "2") },
			refused: "at most 1 per Container",
		},
		"limit-ratio": {change: func(p *corev1.Pod) {
			p.Spec.Containers[0].Resources.Limits = quantities("cpu", "500m")
			p.Spec.Containers[0].Resources.Requests = quantities("cpu", "100m")
		}, refused: "5 times"},
		"runtime-class": {
			change: func(p *corev1.Pod) { p.Spec.RuntimeClassName = new("sandbox") },
			look: func(p *corev1.Pod) bool {
				return p.Spec.Overhead.Memory().String() == "10Mi" && p.Spec.NodeSelector["sandbox"] == "yes" &&
					slices.ContainsFunc(p.Spec.Tolerations, func(t corev1.Toleration) bool {
						return t.Key == "sandbox"
					})
			},
		},
		"runtime-class-unknown": {
			change:  func(p *corev1.Pod) { p.Spec.RuntimeClassName = new("none") },
			refused: `RuntimeClass "none" not found`,
		},
		"overhead": {
			change:  func(p *corev1.Pod) { p.Spec.Overhead = quantities("memory", "1Mi") },
			refused: "only a runtime class",
		},
		"privileged": {change: func(p *corev1.Pod) {
			p.Spec.Containers[0].SecurityContext = &corev1.SecurityContext{Privileged: new(true)}
		}, refused: "baseline"},
		"account": {look: func(p *corev1.Pod) bool {
			c := p.Spec.Containers[0]
			return p.Spec.ServiceAccountName == "default" && len(c.VolumeMounts) == 1 &&
				c.VolumeMounts[0].MountPath == "/var/run/secrets/kubernetes.io/serviceaccount" &&
				p.Spec.Volumes[0].Name == c.VolumeMounts[0].Name &&
				len(p.Spec.Volumes[0].Projected.Sources) == 3
		}},
		"account-no-token": {
			change: func(p *corev1.Pod) { p.Spec.AutomountServiceAccountToken = new(false) },
			look:   func(p *corev1.Pod) bool { return len(p.Spec.Volumes) == 0 },
		},
		"account-unknown": {
			change:  func(p *corev1.Pod) { p.Spec.ServiceAccountName = "none" },
			refused: "service account",
		},
	} {
		t.Run(name, func(t *testing.T) {
			pod := &corev1.Pod{
				ObjectMeta: metav1.ObjectMeta{Name: name},
				Spec:       corev1.PodSpec{Containers: []corev1.Container{{Name: "c", Image: "i"}}},
			}
			if c.change != nil {
				c.change(pod)
			}
			got, err := client.CoreV1().Pods(ns).Create(ctx, pod, metav1.CreateOptions{})
			if c.refused != "" {
				if !apierrors.IsForbidden(err) || !strings.Contains(err.Error(), c.refused) {
					t.Fatalf("got error %v, want Forbidden with %q", err, c.refused)
				}
				return
			}
			if err != nil {
				t.Fatal(err)
			}
			if !c.look(got) {
				t.Errorf("unexpected pod: %+v", got)
			}
		})
	}
	_, err := client.SchedulingV1().PriorityClasses().Create(ctx, &schedulingv1.PriorityClass{
		ObjectMeta:    metav1.ObjectMeta{Name: "second"},
		GlobalDefault: true,
	}, metav1.CreateOptions{})
	if !apierrors.IsForbidden(err) {
		t.Errorf("create a second default priority class: got %v, want Forbidden", err)
	}
}

// TestAdmissionPlugins compares the names and the order of the plugins with the output of
// kube-apiserver -h.
func TestAdmissionPlugins(t *testing.T) {
	t.Parallel()
	o := admission.NewOptions()
	var byDefault []string
	for _, name := range o.RecommendedPluginOrder {
		if !o.DefaultOffPlugins.Has(name) {
			byDefault = append(byDefault, name)
		}
	}
	want := strings.Fields(`
		NamespaceLifecycle LimitRanger ServiceAccount TaintNodesByCondition PodSecurity Priority
		DefaultTolerationSeconds DefaultStorageClass StorageObjectInUseProtection PodGroupProtection
		PersistentVolumeClaimResize RuntimeClass CertificateApproval CertificateSigning
		ClusterTrustBundleAttest CertificateSubjectRestriction DefaultIngressClass PodTopologyLabels
		PodGroupWorkloadExists NodeDeclaredFeatureValidator JobValidation PodResizeValidator
		MutatingAdmissionPolicy MutatingAdmissionWebhook ValidatingAdmissionPolicy
		ValidatingAdmissionWebhook ResourceQuota`)
	if !slices.Equal(byDefault, want) {
		t.Errorf("plugins on by default are\n%v, want\n%v", byDefault, want)
	}
	off := strings.Fields(`
		AlwaysAdmit AlwaysDeny AlwaysPullImages DenyServiceExternalIPs EventRateLimit
		ExtendedResourceToleration ImagePolicyWebhook LimitPodHardAntiAffinityTopology
		NamespaceAutoProvision NamespaceExists NodeRestriction OwnerReferencesPermissionEnforcement
		PodNodeSelector PodTolerationRestriction`)
	if got := sets.List(o.DefaultOffPlugins); !slices.Equal(got, off) {
		t.Errorf("plugins off by default are\n%v, want\n%v", got, off)
	}
	for before, after := range map[string]string{
		"ServiceAccount":   "NodeRestriction",
		"NodeRestriction":  "TaintNodesByCondition",
		"AlwaysPullImages": "ImagePolicyWebhook",
		"ResourceQuota":    "AlwaysDeny",
	} {
		if i := slices.Index(o.RecommendedPluginOrder, before); o.RecommendedPluginOrder[i+1] != after {
			t.Errorf("plugin after %s is %s, want %s", before, o.RecommendedPluginOrder[i+1], after)
		}
	}
	for names, mistakes := range map[[2]string]int{
		{"NodeRestriction", "PodSecurity"}: 0,
		{"Nope", ""}:                       1,
		{"", "Nope"}:                       1,
		{"PodSecurity", "PodSecurity"}:     1,
	} {
		o := admission.NewOptions()
		for i, list := range []*[]string{&o.EnablePlugins, &o.DisablePlugins} {
			if names[i] != "" {
				*list = []string{names[i]}
			}
		}
		if errs := o.Validate(); len(errs) != mistakes {
			t.Errorf("%v: got errors %v, want %d", names, errs, mistakes)
		}
	}
}
