package apitest

import (
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

func TestAdmissionServiceAccount(t *testing.T) {
	t.Parallel()
	_, client := quiet(t)
	p := newPlugin(t, "ServiceAccount", client)
	strict := map[string]string{"kubernetes.io/enforce-mountable-secrets": "T"}
	for _, a := range []*corev1.ServiceAccount{
		{
			ObjectMeta:       metav1.ObjectMeta{Name: "default"},
			ImagePullSecrets: []corev1.LocalObjectReference{{Name: "pull"}},
		},
		{ObjectMeta: metav1.ObjectMeta{Name: "silent"}, AutomountServiceAccountToken: new(false)},
		{
			ObjectMeta:       metav1.ObjectMeta{Name: "strict", Annotations: strict},
			Secrets:          []corev1.ObjectReference{{Name: "ours"}},
			ImagePullSecrets: []corev1.LocalObjectReference{{Name: "pull"}},
		},
	} {
		must(client.CoreV1().ServiceAccounts("default").Create(t.Context(), a, metav1.CreateOptions{}))(t)
	}
	account := func(name string) func(*corev1.Pod) {
		return func(p *corev1.Pod) { p.Spec.ServiceAccountName = name }
	}
	automount := func(yes bool) func(*corev1.Pod) {
		return func(p *corev1.Pod) { p.Spec.AutomountServiceAccountToken = &yes }
	}
	const path = "/var/run/secrets/kubernetes.io/serviceaccount"
	for name, c := range map[string]struct {
		change          []func(*corev1.Pod)
		volumes, mounts int
	}{
		"default":         {nil, 1, 1},
		"account says no": {[]func(*corev1.Pod){account("silent")}, 0, 0},
		"pod says yes":    {[]func(*corev1.Pod){account("silent"), automount(true)}, 1, 1},
		"pod says no":     {[]func(*corev1.Pod){automount(false)}, 0, 0},
		"something else": {[]func(*corev1.Pod){func(p *corev1.Pod) {
			p.Spec.Containers[0].VolumeMounts = []corev1.VolumeMount{{Name: "v", MountPath: path}}
		}}, 0, 1},
		"volume is there": {[]func(*corev1.Pod){func(p *corev1.Pod) {
			p.Spec.Volumes = []corev1.Volume{{Name: "kube-api-access-x"}}
		}}, 1, 1},
		"init container": {[]func(*corev1.Pod){func(p *corev1.Pod) {
			p.Spec.InitContainers = []corev1.Container{{Name: "i"}}
		}}, 1, 2},
		"half of them": {[]func(*corev1.Pod){func(p *corev1.Pod) {
			p.Spec.InitContainers = []corev1.Container{
				{Name: "i", VolumeMounts: []corev1.VolumeMount{{Name: "v", MountPath: path}}},
			}
		}}, 1, 2},
		"own pull secrets": {[]func(*corev1.Pod){func(p *corev1.Pod) {
			p.Spec.ImagePullSecrets = []corev1.LocalObjectReference{{Name: "own"}}
		}}, 1, 1},
		"unknown to silent": {[]func(*corev1.Pod){account("silent"), func(p *corev1.Pod) {
			p.Spec.ImagePullSecrets = []corev1.LocalObjectReference{{Name: "own"}}
		}}, 0, 0},
	} {
		pod := newPod(c.change...)
		asked := len(pod.Spec.ImagePullSecrets)
		if err := ask(t, p, "pods", pod, nil); err != nil {
			t.Errorf("%s: %v", name, err)
		}
		mounts := 0
		for _, c := range append(pod.Spec.InitContainers, pod.Spec.Containers...) {
			mounts += len(c.VolumeMounts)
		}
		if len(pod.Spec.Volumes) != c.volumes || mounts != c.mounts {
			t.Errorf("%s: %d volumes and %d mounts, want %d and %d",
				name, len(pod.Spec.Volumes), mounts, c.volumes, c.mounts)
		}
		if s := pod.Spec.ImagePullSecrets; asked == 0 && pod.Spec.ServiceAccountName == "default" &&
			(len(s) != 1 || s[0].Name != "pull") || asked > 0 && s[0].Name != "own" {
			t.Errorf("%s: image pull secrets are %v", name, s)
		}
	}

	secret := func(name string) corev1.VolumeSource {
		return corev1.VolumeSource{Secret: &corev1.SecretVolumeSource{SecretName: name}}
	}
	volume := func(v corev1.VolumeSource) func(*corev1.Pod) {
		return func(p *corev1.Pod) { p.Spec.Volumes = []corev1.Volume{{Name: "v", VolumeSource: v}} }
	}
	from := func(name string) []corev1.EnvFromSource {
		return []corev1.EnvFromSource{{SecretRef: &corev1.SecretEnvSource{
			LocalObjectReference: corev1.LocalObjectReference{Name: name},
		}}}
	}
	env := func(name string) []corev1.EnvVar {
		return []corev1.EnvVar{{
			Name: "X",
			ValueFrom: &corev1.EnvVarSource{SecretKeyRef: &corev1.SecretKeySelector{
				LocalObjectReference: corev1.LocalObjectReference{Name: name},
			}},
		}}
	}
	pull := func(name string) func(*corev1.Pod) {
		return func(p *corev1.Pod) {
			p.Spec.ImagePullSecrets = []corev1.LocalObjectReference{{Name: name}}
		}
	}
	projected := corev1.VolumeSource{
		Projected: &corev1.ProjectedVolumeSource{Sources: []corev1.VolumeProjection{
			{Secret: &corev1.SecretProjection{
				LocalObjectReference: corev1.LocalObjectReference{Name: "theirs"},
			}},
		}},
	}
	token := corev1.VolumeSource{Projected: &corev1.ProjectedVolumeSource{
		Sources: []corev1.VolumeProjection{{
			ServiceAccountToken: &corev1.ServiceAccountTokenProjection{},
		}},
	}}
	mirror := func(p *corev1.Pod) {
		p.Annotations = map[string]string{corev1.MirrorPodAnnotationKey: "x"}
	}
	for name, c := range map[string]struct {
		change  []func(*corev1.Pod)
		refused bool
	}{
		"no such account": {[]func(*corev1.Pod){account("none")}, true},
		"any secret":      {[]func(*corev1.Pod){volume(secret("theirs"))}, false},
		"strict":          {[]func(*corev1.Pod){account("strict"), volume(secret("ours"))}, false},
		"strict, other":   {[]func(*corev1.Pod){account("strict"), volume(secret("theirs"))}, true},
		// the annotation does not apply to projected volumes
		"strict, projected": {[]func(*corev1.Pod){account("strict"), volume(projected)}, false},
		"strict, env": {[]func(*corev1.Pod){account("strict"), func(p *corev1.Pod) {
			p.Spec.Containers[0].Env = env("theirs")
		}}, true},
		"strict, own env": {[]func(*corev1.Pod){account("strict"), func(p *corev1.Pod) {
			p.Spec.Containers[0].Env = env("ours")
		}}, false},
		"strict, envFrom": {[]func(*corev1.Pod){account("strict"), func(p *corev1.Pod) {
			p.Spec.Containers[0].EnvFrom = from("theirs")
		}}, true},
		"strict, init": {[]func(*corev1.Pod){account("strict"), func(p *corev1.Pod) {
			p.Spec.InitContainers = []corev1.Container{{EnvFrom: from("theirs")}}
		}}, true},
		"strict, pull":       {[]func(*corev1.Pod){account("strict"), pull("pull")}, false},
		"strict, other pull": {[]func(*corev1.Pod){account("strict"), pull("ours")}, true},
		"mirror":             {[]func(*corev1.Pod){mirror}, false},
		"mirror, account":    {[]func(*corev1.Pod){mirror, account("default")}, true},
		"mirror, secret":     {[]func(*corev1.Pod){mirror, volume(secret("ours"))}, true},
		"mirror, token":      {[]func(*corev1.Pod){mirror, volume(token)}, true},
	} {
		checkRefused(t, name, ask(t, p, "pods", newPod(c.change...), nil), c.refused)
		checkRefused(t, name+", updated", ask(t, p, "pods", newPod(c.change...), newPod()), false)
	}
	debugged := func(account string, from []corev1.EnvFromSource) *corev1.Pod {
		return newPod(func(p *corev1.Pod) {
			p.Spec.ServiceAccountName = account
			p.Spec.EphemeralContainers = []corev1.EphemeralContainer{{
				EphemeralContainerCommon: corev1.EphemeralContainerCommon{Name: "e", EnvFrom: from},
			}}
		})
	}
	checkRefused(t, "ephemeral",
		ask(t, p, "pods/ephemeralcontainers", debugged("strict", from("ours")), newPod()), false)
	checkRefused(t, "ephemeral, other secret",
		ask(t, p, "pods/ephemeralcontainers", debugged("strict", from("theirs")), newPod()), true)
	checkRefused(t, "ephemeral, any secret",
		ask(t, p, "pods/ephemeralcontainers", debugged("default", from("theirs")), newPod()), false)
	checkRefused(t, "ephemeral, no account",
		ask(t, p, "pods/ephemeralcontainers", debugged("", nil), newPod()), true)

	pod := newPod()
	if err := ask(t, p, "pods", pod, nil); err != nil {
		t.Fatal(err)
	}
	if v := pod.Spec.Volumes[0]; !strings.HasPrefix(v.Name, "kube-api-access-") ||
		len(v.Projected.Sources) != 3 || *v.Projected.DefaultMode != 0o644 ||
		*v.Projected.Sources[0].ServiceAccountToken.ExpirationSeconds != 3607 ||
		v.Projected.Sources[1].ConfigMap.Name != "kube-root-ca.crt" {
		t.Errorf("the token volume is %+v", v)
	}
	invalid := newPod(account("strict"), volume(secret("theirs")), func(p *corev1.Pod) {
		p.Spec.Containers = nil
	})
	_, err := client.CoreV1().Pods("default").Create(t.Context(), invalid, metav1.CreateOptions{})
	checkRefused(t, "refused before it is found invalid", err, true)
}
