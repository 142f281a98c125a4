package apitest

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"sync"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"github.com/kinproc/kinproc/server"
)

// podSecurityWarnings counts the Warning headers of responses.
type podSecurityWarnings struct {
	mu sync.Mutex
	n  int
}

func (w *podSecurityWarnings) HandleWarningHeaderWithContext(context.Context, int, string, string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.n++
}

// take returns the count and resets it.
func (w *podSecurityWarnings) take() int {
	w.mu.Lock()
	defer w.mu.Unlock()
	n := w.n
	w.n = 0
	return n
}

var _ rest.WarningHandlerWithContext = &podSecurityWarnings{}

func TestAdmissionPodSecurity(t *testing.T) {
	t.Parallel()
	file := filepath.Join(t.TempDir(), "admission.yaml")
	if err := os.WriteFile(file, []byte(`apiVersion: apiserver.config.k8s.io/v1
kind: AdmissionConfiguration
plugins:
- name: PodSecurity
  configuration:
    apiVersion: pod-security.admission.config.k8s.io/v1
    kind: PodSecurityConfiguration
    defaults: {enforce: privileged, warn: baseline}
    exemptions: {usernames: [trusted], namespaces: [exempt], runtimeClasses: []}
`), 0o600); err != nil {
		t.Fatal(err)
	}
	s, _ := quiet(t, enable(), func(o *server.Options) {
		o.Admission.ConfigFile = file
		o.Admission.DisablePlugins = []string{"ServiceAccount"}
	})
	warned := &podSecurityWarnings{}
	config := s.RESTConfig()
	config.WarningHandlerWithContext = warned
	client, err := kubernetes.NewForConfig(config)
	if err != nil {
		t.Fatal(err)
	}
	ctx := t.Context()
	for name, labels := range map[string]map[string]string{
		"plain":    nil,
		"baseline": {"pod-security.kubernetes.io/enforce": "baseline"},
		"restricted": {
			"pod-security.kubernetes.io/enforce":         "restricted",
			"pod-security.kubernetes.io/enforce-version": "v1.24",
		},
		"warning": {"pod-security.kubernetes.io/warn": "restricted"},
		"exempt":  {"pod-security.kubernetes.io/enforce": "restricted"},
	} {
		must(client.CoreV1().Namespaces().Create(ctx, &corev1.Namespace{
			ObjectMeta: metav1.ObjectMeta{Name: name, Labels: labels},
		}, metav1.CreateOptions{}))(t)
	}
	privileged := func(p *corev1.Pod) {
		p.Spec.Containers[0].SecurityContext = &corev1.SecurityContext{Privileged: new(true)}
	}
	for _, c := range []struct {
		namespace, name string
		change          []func(*corev1.Pod)
		refused         bool
		warnings        int
	}{
		{"plain", "usual", nil, false, 0},
		{"plain", "privileged", []func(*corev1.Pod){privileged}, false, 1},
		{"baseline", "usual", nil, false, 0},
		{"baseline", "privileged", []func(*corev1.Pod){privileged}, true, 0},
		{"restricted", "usual", nil, true, 0},
		{"warning", "usual", nil, false, 1},
		{"exempt", "privileged", []func(*corev1.Pod){privileged}, false, 0},
	} {
		warned.take()
		_, err := client.CoreV1().Pods(c.namespace).Create(ctx,
			newPod(append(c.change, func(p *corev1.Pod) {
				p.Namespace, p.Name = c.namespace, c.name
			})...), metav1.CreateOptions{})
		checkRefused(t, c.namespace+", "+c.name, err, c.refused)
		if n := warned.take(); n != c.warnings {
			t.Errorf("%s, %s: %d warnings, want %d", c.namespace, c.name, n, c.warnings)
		}
	}

	labels := map[string]string{"a": "b"}
	deployment := &appsv1.Deployment{
		ObjectMeta: metav1.ObjectMeta{Name: "d"},
		Spec: appsv1.DeploymentSpec{
			Selector: &metav1.LabelSelector{MatchLabels: labels},
			Template: corev1.PodTemplateSpec{
				ObjectMeta: metav1.ObjectMeta{Labels: labels},
				Spec:       newPod(privileged).Spec,
			},
		},
	}
	_, err = client.AppsV1().Deployments("baseline").Create(ctx, deployment, metav1.CreateOptions{})
	checkRefused(t, "what makes pods", err, false)
	if n := warned.take(); n != 1 {
		t.Errorf("creating a deployment of privileged pods gave %d warnings, want 1", n)
	}

	ns := must(client.CoreV1().Namespaces().Get(ctx, "plain", metav1.GetOptions{}))(t)
	ns.Labels["pod-security.kubernetes.io/enforce"] = "baseline"
	must(client.CoreV1().Namespaces().Update(ctx, ns, metav1.UpdateOptions{}))(t)
	if n := warned.take(); n == 0 {
		t.Error("no warning for a namespace with a pod that violates its new level")
	}

	_, err = client.CoreV1().Namespaces().Create(ctx, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{
		Name: "wrong",
		Labels: map[string]string{
			"pod-security.kubernetes.io/enforce":      "nope",
			"pod-security.kubernetes.io/warn-version": "nope",
		},
	}}, metav1.CreateOptions{})
	var status *apierrors.StatusError
	if !errors.As(err, &status) || !apierrors.IsInvalid(err) ||
		status.ErrStatus.Details.Kind != "Namespace" || len(status.ErrStatus.Details.Causes) != 2 {
		t.Errorf("create a namespace with invalid labels: got %+v, want Invalid with two causes", err)
	}

	allow(t, client, rbacv1.Subject{APIGroup: rbacv1.GroupName, Kind: "User", Name: "trusted"},
		rbacv1.PolicyRule{
			APIGroups: []string{""},
			Resources: []string{"pods"},
			Verbs:     []string{"create"},
		})
	trusted := as(t, s, "trusted")
	eventually(t, "exempt user", func() error {
		_, err := trusted.CoreV1().Pods("restricted").Create(ctx, newPod(privileged, func(p *corev1.Pod) {
			p.Namespace = "restricted"
		}), metav1.CreateOptions{})
		return err
	})
}
