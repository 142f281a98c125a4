package podspec

import (
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/component-base/featuregate"

	"github.com/kinproc/kinproc/chain/features"
)

// uses sets the fields of each gate in a spec.
func uses() map[featuregate.Feature]func(*corev1.PodSpec) {
	project := func(s *corev1.PodSpec, p corev1.VolumeProjection) {
		s.Volumes = append(s.Volumes, corev1.Volume{Name: "p", VolumeSource: corev1.VolumeSource{
			Projected: &corev1.ProjectedVolumeSource{Sources: []corev1.VolumeProjection{p}},
		}})
	}
	return map[featuregate.Feature]func(*corev1.PodSpec){
		features.ClusterTrustBundleProjection: func(s *corev1.PodSpec) {
			project(s, corev1.VolumeProjection{
				ClusterTrustBundle: &corev1.ClusterTrustBundleProjection{Path: "a"},
			})
		},
		features.PodCertificateRequest: func(s *corev1.PodSpec) {
			project(s, corev1.VolumeProjection{
				PodCertificate: &corev1.PodCertificateProjection{KeyPath: "a"},
			})
		},
		features.ContainerRestartRules: func(s *corev1.PodSpec) {
			s.Containers[0].RestartPolicy = new(corev1.ContainerRestartPolicyNever)
			s.Containers[0].RestartPolicyRules = []corev1.ContainerRestartRule{{Action: "Restart"}}
		},
		features.HostnameOverride: func(s *corev1.PodSpec) { s.HostnameOverride = new("a") },
		features.EnvFiles: func(s *corev1.PodSpec) {
			s.Containers[0].Env = []corev1.EnvVar{{Name: "A", ValueFrom: &corev1.EnvVarSource{
				FileKeyRef: &corev1.FileKeySelector{Key: "a"},
			}}}
		},
		features.ImageVolume: func(s *corev1.PodSpec) {
			s.Volumes = append(s.Volumes, corev1.Volume{
				Name:         "i",
				VolumeSource: corev1.VolumeSource{Image: &corev1.ImageVolumeSource{Reference: "a"}},
			})
			s.Containers[0].VolumeMounts = []corev1.VolumeMount{
				{Name: "i", MountPath: "/i"}, {Name: "e", MountPath: "/e"},
			}
		},
	}
}

// specFor returns a spec that uses the fields of a gate, or of none.
func specFor(gate featuregate.Feature) *corev1.PodSpec {
	spec := &corev1.PodSpec{
		InitContainers: []corev1.Container{
			{Name: "side", RestartPolicy: new(corev1.ContainerRestartPolicyAlways)},
		},
		Containers: []corev1.Container{{Name: "c"}},
		Volumes:    []corev1.Volume{{Name: "e"}},
	}
	if use := uses()[gate]; use != nil {
		use(spec)
	}
	return spec
}

func TestFieldsOfGates(t *testing.T) {
	t.Parallel()
	all := func(featuregate.Feature) bool { return true }
	for _, f := range specFeatures() {
		if f.Gate == "" {
			continue
		}
		if uses()[f.Gate] == nil {
			t.Errorf("%s: no use", f.Gate)
			continue
		}
		off := func(gate featuregate.Feature) bool { return gate != f.Gate }
		for name, test := range map[string]struct {
			old   *corev1.PodSpec
			on    func(featuregate.Feature) bool
			clear bool
		}{
			"on":                 {nil, all, false},
			"off, new":           {nil, off, true},
			"off, old uses none": {specFor(""), off, true},
			"off, old uses it":   {specFor(f.Gate), off, false},
		} {
			spec := specFor(f.Gate)
			features.Drop(specFeatures(), spec, test.old, test.on)
			if kept := equality.Semantic.DeepEqual(spec, specFor(f.Gate)); kept == test.clear {
				t.Errorf("%s, %s: %+v", f.Gate, name, spec)
			}
			if used := f.Take(spec, false); used == test.clear {
				t.Errorf("%s, %s: used = %t after clearing", f.Gate, name, used)
			}
		}
	}
}

func TestImageVolumesAreClearedWithTheirMounts(t *testing.T) {
	t.Parallel()
	spec := specFor(features.ImageVolume)
	features.Drop(specFeatures(), spec, nil, func(featuregate.Feature) bool { return false })
	if v := spec.Volumes; len(v) != 1 || v[0].Name != "e" {
		t.Errorf("volumes: %+v", v)
	}
	if m := spec.Containers[0].VolumeMounts; len(m) != 1 || m[0].Name != "e" {
		t.Errorf("mounts: %+v", m)
	}
}

func TestSidecarsAreNotRestartRules(t *testing.T) {
	t.Parallel()
	spec := specFor("")
	spec.InitContainers[0].RestartPolicyRules = []corev1.ContainerRestartRule{{Action: "Restart"}}
	features.Drop(specFeatures(), spec, nil, func(featuregate.Feature) bool { return false })
	if c := spec.InitContainers[0]; !isSidecar(&c) || c.RestartPolicyRules != nil {
		t.Errorf("%+v", c)
	}
}

func TestValidationOfGates(t *testing.T) {
	t.Parallel()
	exit := &corev1.ContainerRestartRuleOnExitCodes{
		Operator: corev1.ContainerRestartRuleOnExitCodesOpIn, Values: []int32{1},
	}
	rules := func(action corev1.ContainerRestartRuleAction) []corev1.ContainerRestartRule {
		return []corev1.ContainerRestartRule{{Action: action, ExitCodes: exit}}
	}
	for name, test := range map[string]struct {
		gate   featuregate.Feature
		change func(*corev1.PodSpec)
		want   string
	}{
		"restart of all containers": {
			features.RestartAllContainersOnContainerExits,
			func(s *corev1.PodSpec) {
				s.Containers[0].RestartPolicy = new(corev1.ContainerRestartPolicyNever)
				s.Containers[0].RestartPolicyRules = rules("RestartAllContainers")
			},
			`spec.containers[0].restartPolicyRules[0].action: Unsupported value`,
		},
		"rules of a sidecar": {
			features.RestartAllContainersOnContainerExits,
			func(s *corev1.PodSpec) { s.InitContainers[0].RestartPolicyRules = rules("Restart") },
			`spec.initContainers[0].restartPolicyRules: Forbidden`,
		},
		"policy for labels of SELinux": {
			features.SELinuxMount,
			func(s *corev1.PodSpec) {
				s.SecurityContext = &corev1.PodSecurityContext{
					SELinuxChangePolicy: new(corev1.SELinuxChangePolicyMountOption),
				}
			},
			`spec.securityContext.seLinuxChangePolicy: Unsupported value`,
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			spec := specFor("")
			test.change(spec)
			refusals := func(opts Options, on bool) string {
				v := &validator{spec: spec, opts: opts, on: func(gate featuregate.Feature) bool {
					return on || gate != test.gate
				}}
				path := field.NewPath("spec")
				errs := v.validateSecurityContext(path.Child("securityContext"))
				for i := range spec.InitContainers {
					errs = append(errs, v.validateInitRestart(&spec.InitContainers[i],
						path.Child("initContainers").Index(i))...)
				}
				for i := range spec.Containers {
					errs = append(errs, v.validateRestart(&spec.Containers[i],
						path.Child("containers").Index(i))...)
				}
				if len(errs) == 0 {
					return ""
				}
				return errs.ToAggregate().Error()
			}
			if got := refusals(Options{}, false); !strings.Contains(got, test.want) {
				t.Errorf("off: %q, want %q", got, test.want)
			}
			if got := refusals(Options{}, true); got != "" {
				t.Errorf("on: %q", got)
			}
			if got := refusals(optionsFrom(spec, nil), false); got != "" {
				t.Errorf("off, but the old object uses it: %q", got)
			}
		})
	}
}

func TestPodLevelResources(t *testing.T) {
	t.Parallel()
	container := corev1.Container{Name: "c", Resources: corev1.ResourceRequirements{
		Limits: list("cpu", "1", "memory", "1Gi"), Requests: list("cpu", "500m", "memory", "1Gi"),
	}}
	for name, test := range map[string]struct {
		complete func(*corev1.PodSpec)
		given    corev1.ResourceRequirements
		want     corev1.ResourceRequirements
	}{
		"requests, before the fix": {
			setPodResources, corev1.ResourceRequirements{Requests: list("cpu", "2")},
			corev1.ResourceRequirements{Requests: list("cpu", "2")},
		},
		"requests": {
			completePodResources, corev1.ResourceRequirements{Requests: list("cpu", "2")},
			corev1.ResourceRequirements{
				Requests: list("cpu", "2", "memory", "1Gi"),
				Limits:   list("cpu", "2", "memory", "1Gi"),
			},
		},
		"limits": {
			completePodResources, corev1.ResourceRequirements{Limits: list("cpu", "3")},
			corev1.ResourceRequirements{
				Requests: list("cpu", "500m", "memory", "1Gi"),
				Limits:   list("cpu", "3", "memory", "1Gi"),
			},
		},
		"none": {complete: completePodResources},
	} {
		spec := &corev1.PodSpec{Containers: []corev1.Container{container}, Resources: &test.given}
		test.complete(spec)
		if !equality.Semantic.DeepEqual(*spec.Resources, test.want) {
			t.Errorf("%s: %v, want %v", name, *spec.Resources, test.want)
		}
	}
	spec := &corev1.PodSpec{
		Containers: []corev1.Container{container, {Name: "unlimited"}},
		Resources:  &corev1.ResourceRequirements{Requests: list("cpu", "2")},
	}
	if completePodResources(spec); len(spec.Resources.Limits) > 0 {
		t.Errorf("limits without those of one container: %v", spec.Resources.Limits)
	}
}

func list(pairs ...string) corev1.ResourceList {
	all := corev1.ResourceList{}
	for i := 0; i < len(pairs); i += 2 {
		all[corev1.ResourceName(pairs[i])] = resource.MustParse(pairs[i+1])
	}
	return all
}
