package podspec

import (
	"slices"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/kinproc/kinproc/chain/kind/kindtest"
)

// TestCorners tests the less common rules.
func TestCorners(t *testing.T) {
	t.Parallel()
	tests := map[string]struct {
		spec string
		want []string
	}{
		"claim of two kinds": {
			with("", `"volumes":[{"name":"v","persistentVolumeClaim":{"claimName":"x-w"}},
				{"name":"w","ephemeral":{"volumeClaimTemplate":{"spec":{"accessModes":["ReadWriteOnce"],
				"resources":{"requests":{"storage":"1"}}}}}}]`),
			[]string{"spec.volumes[0].persistentVolumeClaim.claimName Invalid"},
		},
		"volume of two sources": {
			with("",
				`"volumes":[{"name":"v","emptyDir":{},"hostPath":{"path":"/a"},"cephfs":{"monitors":["m"]}}]`),
			[]string{"spec.volumes[0].cephFS Forbidden", "spec.volumes[0].hostPath Forbidden"},
		},
		"token": {
			with("", `"volumes":[
				{"name":"v","projected":{"sources":[{"serviceAccountToken":{"expirationSeconds":4294967297,
				"path":"../t"}}]}}]`),
			[]string{
				"spec.volumes[0].projected.path Invalid",
				"spec.volumes[0].projected.sources[0].serviceAccountToken Forbidden",
				"spec.volumes[0].projected.sources[0].serviceAccountToken.expirationSeconds Invalid",
			},
		},
		"pod certificate": {
			with("", `"volumes":[{"name":"v",
				"projected":{"sources":[{"podCertificate":{"signerName":"kubernetes.io/a","keyType":"DSA",
				"maxExpirationSeconds":90000,"credentialBundlePath":"b"}}]}}]`),
			[]string{
				"spec.volumes[0].projected.sources[0].podCertificate.keyType NotSupported",
				"spec.volumes[0].projected.sources[0].podCertificate.maxExpirationSeconds Invalid",
			},
		},
		"file key": {
			with(`"env":[
				{"name":"A","valueFrom":{"fileKeyRef":{"volumeName":"v","path":"../e","key":"a=b"}}},
				{"name":"B","valueFrom":{"fileKeyRef":{"volumeName":"w","path":"e","key":"k"}}}]`,
				`"volumes":[{"name":"v","configMap":{"name":"c"}}]`),
			[]string{
				"spec.containers[0].env[0].valueFrom.fileKeyRef.key Invalid",
				"spec.containers[0].env[0].valueFrom.fileKeyRef.path Invalid",
				"spec.containers[0].env[0].valueFrom.fileKeyRef.volumeName Invalid",
				"spec.containers[0].env[1].valueFrom.fileKeyRef.volumeName NotFound",
			},
		},
		"restart rules": {
			with(`"restartPolicyRules":[{"action":"Maybe","exitCodes":{"operator":"Out","values":[1]}},
				{"action":"Restart"}]`, ""),
			[]string{
				"spec.containers[0].restartPolicy Required",
				"spec.containers[0].restartPolicyRules[0].action NotSupported",
				"spec.containers[0].restartPolicyRules[0].exitCodes.operator NotSupported",
				"spec.containers[0].restartPolicyRules[1].exitCodes Required",
			},
		},
		"resize policy of a pod that ends": {
			with(`"resizePolicy":[{"resourceName":"cpu","restartPolicy":"RestartContainer"},
				{"resourceName":"cpu","restartPolicy":"Perhaps"},
				{"resourceName":"disk","restartPolicy":"NotRequired"}]`,
				`"restartPolicy":"Never"`),
			[]string{
				"spec.containers[0].resizePolicy Invalid",
				"spec.containers[0].resizePolicy NotSupported",
				"spec.containers[0].resizePolicy[1] Duplicate",
			},
		},
		"tolerations": {
			with("", `"tolerations":[{"key":"a b","operator":"Lt","value":"1"},{"operator":"Equal"},
				{"key":"k","effect":"NoSchedule","tolerationSeconds":1,"operator":"Exists","value":"v"}]`),
			[]string{
				"spec.tolerations[0].key Invalid",
				"spec.tolerations[0].operator NotSupported",
				"spec.tolerations[1].operator Invalid",
				"spec.tolerations[2].effect Invalid",
				"spec.tolerations[2].operator Invalid",
			},
		},
		"label keys": {
			with("", `"affinity":{"podAntiAffinity":{"requiredDuringSchedulingIgnoredDuringExecution":[
				{"topologyKey":"t","labelSelector":{},
				"matchLabelKeys":["a b","c"],"mismatchLabelKeys":["c"]}]}}`),
			[]string{
				"spec.affinity.podAntiAffinity.requiredDuringSchedulingIgnoredDuringExecution[0]" +
					".matchLabelKeys[0] Invalid",
				"spec.affinity.podAntiAffinity.requiredDuringSchedulingIgnoredDuringExecution[0]" +
					".matchLabelKeys[1] Invalid",
			},
		},
		"host name of two": {
			with("", `"hostnameOverride":"h","setHostnameAsFQDN":true`),
			[]string{"spec.hostnameOverride Forbidden"},
		},
		"claims twice": {
			with(`"resources":{"claims":[{"name":"c"},{"name":"c","request":"r"},{"name":"d"}]}`,
				`"resourceClaims":[{"name":"c","resourceClaimName":"x"},{"name":"c"}]`),
			[]string{
				"spec.containers[0].resources.claims[1] Duplicate",
				"spec.containers[0].resources.claims[2] NotFound",
				"spec.resourceClaims[1] Invalid",
				"spec.resourceClaims[1].name Duplicate",
			},
		},
		"key twice": {
			with("", `"affinity":{"podAffinity":{"requiredDuringSchedulingIgnoredDuringExecution":[
				{"topologyKey":"t","matchLabelKeys":["a","a"],
				"labelSelector":{"matchExpressions":[{"key":"a","operator":"Exists"},
				{"key":"a","operator":"Exists"}]}}]}}`),
			[]string{
				"spec.affinity.podAffinity.requiredDuringSchedulingIgnoredDuringExecution[0][1] Invalid",
			},
		},
		"huge pages": {
			with("", `"resources":{"limits":{"hugepages-2Mi":"3Mi","disk":"1"},"requests":{"cpu":"1"}}`),
			[]string{
				"spec.resources.limits[disk] Invalid", "spec.resources.limits[hugepages-2Mi] Invalid",
				"spec.resources.requests[hugepages-2Mi] Invalid",
			},
		},
		"devices": {
			with(`"volumeDevices":[{"name":"v","devicePath":"/d"},{"name":"v","devicePath":"/d/../e"}]`,
				`"volumes":[{"name":"v","emptyDir":{}}]`),
			[]string{
				"spec.containers[0].volumeDevices[0].name Invalid",
				"spec.containers[0].volumeDevices[1].devicePath Invalid",
				"spec.containers[0].volumeDevices[1].name Invalid",
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

func TestTemplatesNameTheImagesOfVolumes(t *testing.T) {
	t.Parallel()
	tmpl := &corev1.PodTemplateSpec{
		Spec: parsePod(t, with("", `"volumes":[{"name":"v","image":{}}]`)).Spec,
	}
	want := []string{"template.spec.volumes[0].image.reference Required"}
	if got := kindtest.Causes(ValidateTemplate(tmpl, field.NewPath("template"),
		OptionsFor(tmpl, nil))); !slices.Equal(got, want) {
		t.Errorf("new template: %q", got)
	}
	if got := kindtest.Causes(ValidateTemplate(tmpl, field.NewPath("template"),
		OptionsFor(tmpl, tmpl))); len(got) > 0 {
		t.Errorf("unchanged template: %q", got)
	}
}
