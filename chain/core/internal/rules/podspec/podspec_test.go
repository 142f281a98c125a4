package podspec

import (
	"encoding/json"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/kinproc/kinproc/chain/kind/kindtest"
)

func parsePod(t testing.TB, spec string) *corev1.Pod {
	t.Helper()
	p := &corev1.Pod{}
	p.Name = "x"
	if err := json.Unmarshal([]byte(spec), &p.Spec); err != nil {
		t.Fatalf("parse %s: %v", spec, err)
	}
	SetPodDefaults(&p.Spec)
	DefaultPodResources(&p.Spec)
	return p
}

// with returns the spec of a pod with one container, with additional fields of the container and of
// the spec.
func with(container, spec string) string {
	if container != "" {
		container = "," + container
	}
	if spec != "" {
		spec = "," + spec
	}
	return `{"containers":[{"name":"c","image":"i"` + container + `}]` + spec + `}`
}

func TestRules(t *testing.T) {
	t.Parallel()
	const c0 = "spec.containers[0]."
	tests := map[string]struct {
		spec string
		want []string
	}{
		"minimal":     {with("", ""), nil},
		"empty":       {`{}`, []string{"spec.containers Required"}},
		"white space": {`{"containers":[{"name":"c","image":" i"}]}`, []string{c0 + "image Invalid"}},
		"mount of a wrong volume": {
			with(`"volumeMounts":[{"name":"v","mountPath":"/v"}]`, `"volumes":[{"name":"v","secret":{}}]`),
			[]string{c0 + "volumeMounts[0].name NotFound", "spec.volumes[0].secret.secretName Required"},
		},
		"same path twice": {
			with(
				`"volumeMounts":[{"name":"v","mountPath":"/v"},{"name":"v","mountPath":"/v","subPath":"../x"}]`,
				`"volumes":[{"name":"v","emptyDir":{}}]`),
			[]string{c0 + "volumeMounts.subPath Invalid", c0 + "volumeMounts[1].mountPath Invalid"},
		},
		"device of a directory": {
			with(`"volumeDevices":[{"name":"v","devicePath":"/dev/x"}]`,
				`"volumes":[{"name":"v","emptyDir":{}}]`),
			[]string{c0 + "volumeDevices[0].name Invalid"},
		},
		"propagation": {
			with(`"volumeMounts":[{"name":"v","mountPath":"/v","mountPropagation":"Bidirectional"}]`,
				`"volumes":[{"name":"v","emptyDir":{}}]`),
			[]string{c0 + "volumeMounts.mountPropagation Forbidden"},
		},
		"two volume types": {
			with("", `"volumes":[{"name":"v","emptyDir":{},"hostPath":{"path":"/x"}}]`),
			[]string{"spec.volumes[0].hostPath Forbidden"},
		},
		"downward API": {
			with("", `"volumes":[
				{"name":"v","downwardAPI":{"items":[{"path":"a","fieldRef":{"fieldPath":"status.podIP"}},
				{"path":"/b"}]}}]`),
			[]string{
				"spec.volumes[0].downwardAPI Required",
				"spec.volumes[0].downwardAPI.fieldRef.fieldPath NotSupported",
				"spec.volumes[0].downwardAPI.path Invalid",
			},
		},
		"ephemeral volume": {
			with("", `"volumes":[{"name":"v","ephemeral":{"volumeClaimTemplate":{"spec":{}}}}]`),
			[]string{
				"spec.volumes[0].ephemeral.volumeClaimTemplate.spec.accessModes Required",
				"spec.volumes[0].ephemeral.volumeClaimTemplate.spec.resources[storage] Required",
			},
		},
		"env of annotations": {
			with(`"env":[{"name":"A","valueFrom":{"fieldRef":{"fieldPath":"metadata.annotations['a b']"}}},
				{"name":"B","valueFrom":{"fieldRef":{"fieldPath":"spec.nodeName['x']"}}}]`, ""),
			[]string{
				c0 + "env[0].valueFrom.fieldRef Invalid", c0 + "env[1].valueFrom.fieldRef.fieldPath Invalid",
			},
		},
		"env of resources": {
			with(`"env":[{"name":"A","valueFrom":{"resourceFieldRef":{"resource":"limits.disk"}}},
				{"name":"B","valueFrom":{"resourceFieldRef":{"resource":"limits.cpu","divisor":"2"}}}]`, ""),
			[]string{
				c0 + "env[0].valueFrom.resourceFieldRef.resource NotSupported",
				c0 + "env[1].valueFrom.resourceFieldRef.divisor Invalid",
			},
		},
		"envFrom": {with(`"envFrom":[{}]`, ""), []string{c0 + "envFrom Invalid"}},
		"two handlers": {
			with(`"livenessProbe":{"exec":{"command":["a"]},"httpGet":{"port":80}}`, ""),
			[]string{c0 + "livenessProbe.httpGet Forbidden"},
		},
		"long sleep": {
			with(`"lifecycle":{"preStop":{"sleep":{"seconds":31}}}`, ""),
			[]string{c0 + "lifecycle.preStop.sleep Invalid"},
		},
		"unknown claim": {
			with(`"resources":{"claims":[{"name":"x"}]}`, `"resourceClaims":[{"name":"y"}]`),
			[]string{c0 + "resources.claims[0] NotFound", "spec.resourceClaims[0] Invalid"},
		},
		"pod resources": {
			with(`"resources":{"requests":{"cpu":"2"},"limits":{"cpu":"3"}}`,
				`"resources":{"requests":{"cpu":"1"},"limits":{"cpu":"1"}}`),
			[]string{
				"spec.resources.containers[0][cpu].limits Invalid", "spec.resources.requests[cpu] Invalid",
			},
		},
		"restart rules": {
			with(`"restartPolicyRules":[{"action":"Restart"}]`, ""),
			[]string{c0 + "restartPolicy Required", c0 + "restartPolicyRules[0].exitCodes Required"},
		},
		"profiles": {
			with(`"securityContext":{"seccompProfile":{"type":"Localhost"},
				"appArmorProfile":{"type":"Unconfined","localhostProfile":"x"},"procMount":"Unmasked"}`, ""),
			[]string{
				c0 + "securityContext.appArmorProfile.localhostProfile Invalid",
				c0 + "securityContext.procMount Invalid",
				c0 + "securityContext.seccompProfile.localhostProfile Required",
			},
		},
		"windows user": {
			with(`"securityContext":{"windowsOptions":{"runAsUserName":"a\\b\\c"}}`, ""),
			[]string{c0 + "securityContext.windowsOptions.runAsUserName Invalid"},
		},
		"windows options on linux": {
			with(`"securityContext":{"windowsOptions":{"runAsUserName":"a"}}`, `"os":{"name":"linux"}`),
			[]string{c0 + "securityContext.windowsOptions Forbidden"},
		},
		"host process": {
			with("", `"securityContext":{"windowsOptions":{"hostProcess":true}}`),
			[]string{"spec.hostNetwork Invalid"},
		},
		"host sysctl": {
			with("", `"hostNetwork":true,"securityContext":{"sysctls":[
				{"name":"net/ipv4/ip_forward","value":"1"}]}`),
			[]string{"spec.securityContext.sysctls[0].name Invalid"},
		},
		"no name servers": {
			with("", `"dnsPolicy":"None"`),
			[]string{"spec.dnsConfig Required"},
		},
		"affinity": {
			with("",
				`"affinity":{"podAffinity":{"preferredDuringSchedulingIgnoredDuringExecution":[
				{"weight":0,"podAffinityTerm":{"matchLabelKeys":["a"]}}]}}`),
			[]string{
				"spec.affinity.podAffinity.preferredDuringSchedulingIgnoredDuringExecution[0]" +
					".podAffinityTerm.matchLabelKeys Forbidden",
				"spec.affinity.podAffinity.preferredDuringSchedulingIgnoredDuringExecution[0]" +
					".podAffinityTerm.topologyKey Invalid",
				"spec.affinity.podAffinity.preferredDuringSchedulingIgnoredDuringExecution[0]" +
					".podAffinityTerm.topologyKey Required",
				"spec.affinity.podAffinity.preferredDuringSchedulingIgnoredDuringExecution[0].weight Invalid",
			},
		},
		"spread twice": {
			with("", `"topologySpreadConstraints":[
				{"maxSkew":1,"topologyKey":"z","whenUnsatisfiable":"ScheduleAnyway","minDomains":1},
				{"maxSkew":1,"topologyKey":"z","whenUnsatisfiable":"ScheduleAnyway"}]`),
			[]string{
				"spec.topologySpreadConstraints[0].minDomains Invalid",
				"spec.topologySpreadConstraints[0].{topologyKey, whenUnsatisfiable} Duplicate",
			},
		},
		"overhead": {
			with("", `"overhead":{"disk":"1"}`), []string{"spec.overhead.limits[disk] Invalid"},
		},
		"hostname": {with("", `"hostnameOverride":"a_b","hostNetwork":true`), []string{
			"spec.hostnameOverride Forbidden", "spec.hostnameOverride Invalid",
		}},
		"preemption": {
			with("", `"preemptionPolicy":"Maybe"`), []string{"spec.preemptionPolicy NotSupported"},
		},
		"ephemeral container": {
			with("", `"ephemeralContainers":[{"name":"e","image":"i","targetContainerName":"x",
				"ports":[{"containerPort":1}],"resources":{"limits":{"cpu":"1"}}}]`),
			[]string{
				"spec.ephemeralContainers[0].ports Forbidden",
				"spec.ephemeralContainers[0].resources Forbidden",
				"spec.ephemeralContainers[0].targetContainerName NotFound",
			},
		},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			p := parsePod(t, test.spec)
			if got := kindtest.Causes(ValidatePod(p, PodOptionsFor(p, nil))); !slices.Equal(got, test.want) {
				t.Errorf("got  %q\nwant %q", got, test.want)
			}
		})
	}
}

func TestTemplateHasNoEphemeralContainers(t *testing.T) {
	t.Parallel()
	tmpl := &corev1.PodTemplateSpec{
		Spec: parsePod(t, with("", `"ephemeralContainers":[{"name":"e","image":"i"}]`)).Spec,
	}
	got := kindtest.Causes(ValidateTemplate(tmpl, field.NewPath("template"), Options{}))
	if want := []string{"template.spec.ephemeralContainers Forbidden"}; !slices.Equal(got, want) {
		t.Errorf("got %q, want %q", got, want)
	}
}

func TestUpdateKeepsWhatWasAllowed(t *testing.T) {
	t.Parallel()
	p := parsePod(t, with(`"resources":{"limits":{"hugepages-2Mi":"3Mi","cpu":"1"}}`,
		`"hostNetwork":true,"securityContext":{"sysctls":[{"name":"net.x","value":"1"}]}`))
	if errs := ValidatePod(p, PodOptionsFor(p, nil)); len(errs) < 2 {
		t.Errorf("a new pod may do more than it should: %v", errs)
	}
	if errs := ValidatePod(p, PodOptionsFor(p, p)); len(errs) > 0 {
		t.Errorf("an old pod cannot stay unchanged: %v", errs)
	}
}

func TestDefaults(t *testing.T) {
	t.Parallel()
	p := parsePod(t, `{"hostNetwork":true,"serviceAccount":"s","volumes":[{"name":"v"}],"containers":[
		{"name":"a","image":"i","ports":[{"containerPort":80}],"resources":{"limits":{"cpu":"100u"}},
		"livenessProbe":{"grpc":{"port":1}}},
		{"name":"b","image":"i:1"},
		{"name":"c",
		"image":"i:latest@sha256:e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855"}]}`)
	c := p.Spec.Containers
	checks := map[string]bool{
		"pull policies": c[0].ImagePullPolicy == "Always" && c[1].ImagePullPolicy == "IfNotPresent" &&
			c[2].ImagePullPolicy == "Always",
		"host port": c[0].Ports[0].HostPort == 80 && c[0].Ports[0].Protocol == "TCP",
		"requests":  c[0].Resources.Requests.Cpu().Equal(resource.MustParse("1m")),
		"probe": c[0].LivenessProbe.PeriodSeconds == 10 &&
			*c[0].LivenessProbe.GRPC.Service == "",
		"service account": p.Spec.ServiceAccountName == "s",
		"empty directory": p.Spec.Volumes[0].EmptyDir != nil,
		"service links":   *p.Spec.EnableServiceLinks,
	}
	for name, ok := range checks {
		if !ok {
			t.Errorf("wrong default: %s", name)
		}
	}
	again := p.DeepCopy()
	SetPodDefaults(&again.Spec)
	if !equality.Semantic.DeepEqual(p, again) {
		t.Error("defaulting twice differs from defaulting once")
	}
}

func TestDropDisabledFields(t *testing.T) {
	t.Parallel()
	spec := with(`"lifecycle":{"stopSignal":"SIGTERM"}`,
		`"schedulingGroup":{"podGroupName":"g"},"volumes":[{"name":"v","emptyDir":{"mode":511}}]`)
	p, old := parsePod(t, spec), parsePod(t, spec)
	old.Spec.Volumes = nil
	DropDisabledSpecFields(&p.Spec, &old.Spec)
	if p.Spec.SchedulingGroup == nil || p.Spec.Containers[0].Lifecycle.StopSignal == nil {
		t.Error("fields that the old pod uses were cleared")
	}
	if p.Spec.Volumes[0].EmptyDir.Mode != nil {
		t.Error("a field that the old pod does not use was not cleared")
	}
}

func TestWarnings(t *testing.T) {
	t.Parallel()
	p := parsePod(t, with(`"env":[{"name":"A","value":"1"},{"name":"A","value":"2"}],
		"resources":{"limits":{"memory":"100m"}}`,
		`"imagePullSecrets":[{},{"name":"a"},{"name":"a"}],
		"nodeSelector":{"beta.kubernetes.io/os":"linux"},
		"affinity":{"podAntiAffinity":{"requiredDuringSchedulingIgnoredDuringExecution":[
		{"topologyKey":"z"}]}}`))
	// The memory limit becomes the request too.
	if got := PodWarnings(p); len(got) != 7 {
		t.Errorf("want 7 warnings, got %q", got)
	}
	p.Name = "a.b"
	if got := PodWarnings(parsePod(t, with("", ""))); len(got) != 0 {
		t.Errorf("want no warnings, got %q", got)
	}
	if got := PodWarnings(p); len(got) != 8 {
		t.Errorf("a name that is not a DNS label: want 8 warnings, got %q", got)
	}
}

// TestDeprecatedNames has a pod with each label and each annotation of the past.
func TestDeprecatedNames(t *testing.T) {
	t.Parallel()
	for label, want := range map[string]string{
		"node-role.kubernetes.io/master": `use "node-role.kubernetes.io/control-plane" instead`,
		"app.kubernetes.io/created-by":   "deprecated since v1.9",
		"scheduler.alpha.kubernetes.io/preferAvoidPods": "deprecated since v1.22; " +
			"use Taints and Tolerations instead",
		"beta.kubernetes.io/arch": `deprecated since v1.14; use "kubernetes.io/arch" instead`,
		"beta.kubernetes.io/os":   `deprecated since v1.14; use "kubernetes.io/os" instead`,
		"beta.kubernetes.io/instance-type": "deprecated since v1.17; " +
			`use "node.kubernetes.io/instance-type" instead`,
		"failure-domain.beta.kubernetes.io/region": "deprecated since v1.17; " +
			`use "topology.kubernetes.io/region" instead`,
		"failure-domain.beta.kubernetes.io/zone": "deprecated since v1.17; " +
			`use "topology.kubernetes.io/zone" instead`,
	} {
		p := parsePod(t, with("", ""))
		p.Spec.NodeSelector = map[string]string{label: ""}
		want = "spec.nodeSelector[" + label + "]: " + want
		if got := PodWarnings(p); len(got) != 1 || got[0] != want {
			t.Errorf("%s: got %q, want %q", label, got, want)
		}
	}
	container := parsePod(t, with("", "")).Spec.Containers[0].Name
	for _, annotation := range []string{
		"scheduler.alpha.kubernetes.io/critical-pod",
		"security.alpha.kubernetes.io/sysctls",
		"security.alpha.kubernetes.io/unsafe-sysctls",
		"seccomp.security.alpha.kubernetes.io/pod",
		"container.seccomp.security.alpha.kubernetes.io/" + container,
	} {
		p := parsePod(t, with("", ""))
		p.Annotations = map[string]string{annotation: "runtime/default"}
		got := PodWarnings(p)
		if len(got) != 1 || !strings.HasPrefix(got[0], "metadata.annotations["+annotation+"]: ") {
			t.Errorf("%s: got %q", annotation, got)
		}
	}
}

// FuzzPod decodes, defaults and validates arbitrary input. Nothing may panic, and defaulting twice
// must have no further effect.
func FuzzPod(f *testing.F) {
	f.Add([]byte(with("", "")))
	f.Add([]byte(`{"os":{},"dnsPolicy":"None","volumes":[{"name":"v","projected":{"sources":[{"serviceAccountToken":{}}]}}],"affinity":{"nodeAffinity":{}}}`))
	f.Add([]byte(`{"containers":[{"securityContext":{"seccompProfile":{}},"lifecycle":{"preStop":{}},"resources":{"limits":{"hugepages-":"1"}},"env":[{"valueFrom":{"fieldRef":{"fieldPath":"['"}}}]}]}`))
	f.Fuzz(func(t *testing.T, spec []byte) {
		p := &corev1.Pod{}
		p.Name = "x"
		if len(spec) > 1<<12 || json.Unmarshal(spec, &p.Spec) != nil {
			return
		}
		SetPodDefaults(&p.Spec)
		DefaultPodResources(&p.Spec)
		again := p.DeepCopy()
		SetPodDefaults(&again.Spec)
		DefaultPodResources(&again.Spec)
		if !equality.Semantic.DeepEqual(p, again) {
			t.Error("defaulting twice differs from defaulting once")
		}
		errs := ValidatePod(p, PodOptionsFor(p, p))
		errs = append(errs, ValidateTemplate(&corev1.PodTemplateSpec{Spec: p.Spec},
			field.NewPath("template"), Options{})...)
		for _, err := range errs {
			_ = err.Error()
		}
		PodWarnings(p)
		DropDisabledSpecFields(&p.Spec, nil)
	})
}
