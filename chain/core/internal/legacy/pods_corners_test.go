package legacy

import (
	"slices"
	"testing"

	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/kinproc/kinproc/chain/core/internal/rules/podspec"
	"github.com/kinproc/kinproc/chain/kind/kindtest"
)

func TestWhichContainersStartAgain(t *testing.T) {
	t.Parallel()
	rule := func(
		operator corev1.ContainerRestartRuleOnExitCodesOperator, action corev1.ContainerRestartRuleAction,
	) corev1.ContainerRestartRule {
		return corev1.ContainerRestartRule{
			Action:    action,
			ExitCodes: &corev1.ContainerRestartRuleOnExitCodes{Operator: operator, Values: []int32{3}},
		}
	}
	in, notIn := corev1.ContainerRestartRuleOnExitCodesOpIn,
		corev1.ContainerRestartRuleOnExitCodesOpNotIn
	restart, all := corev1.ContainerRestartRuleActionRestart,
		corev1.ContainerRestartRuleActionRestartAllContainers
	tests := map[string]struct {
		rules  []corev1.ContainerRestartRule
		policy corev1.ContainerRestartPolicy
		code   int32
		status string
		want   bool
	}{
		"the pod's policy":    {nil, "", 3, "c", false},
		"its own":             {nil, "OnFailure", 3, "c", true},
		"its own, no failure": {nil, "OnFailure", 0, "c", false},
		"rule": {
			[]corev1.ContainerRestartRule{rule(in, restart)}, "Never", 3, "c", true,
		},
		"rule for other codes": {
			[]corev1.ContainerRestartRule{rule(in, restart)}, "Never", 4, "c", false,
		},
		"rule for all others": {
			[]corev1.ContainerRestartRule{rule(notIn, restart)}, "Never", 4, "c", true,
		},
		"another takes all along": {[]corev1.ContainerRestartRule{rule(in, all)}, "Never", 0, "c", true},
		"not in the spec":         {nil, "Always", 3, "d", false},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			old := createdPod(func(p *corev1.Pod) {
				p.Spec.RestartPolicy = corev1.RestartPolicyNever
				p.Spec.Containers[0].RestartPolicyRules = test.rules
				if test.policy != "" {
					p.Spec.Containers[0].RestartPolicy = &test.policy
				}
			})
			old.Status.ContainerStatuses = []corev1.ContainerStatus{{
				Name:  test.status,
				State: corev1.ContainerState{Terminated: &corev1.ContainerStateTerminated{ExitCode: test.code}},
			}}
			p := old.DeepCopy()
			p.Status.ContainerStatuses[0].State = corev1.ContainerState{}
			if got := len(validatePodStatus(t.Context(), p, old)) == 0; got != test.want {
				t.Errorf("container may start again: got %v", got)
			}
		})
	}
}

func TestStatusesOfDevices(t *testing.T) {
	t.Parallel()
	health := func(name string, list ...corev1.ResourceHealth) func(*corev1.Pod) {
		return func(p *corev1.Pod) {
			p.Status.ContainerStatuses = []corev1.ContainerStatus{{
				Name: "c",
				AllocatedResourcesStatus: []corev1.ResourceStatus{
					{Name: corev1.ResourceName(name), Resources: list},
				},
			}}
		}
	}
	healthy := corev1.ResourceHealth{ResourceID: "1", Health: corev1.ResourceHealthStatusHealthy}
	allocated := "status.containerStatuses[0].allocatedResourcesStatus[0]."
	extended := "status.extendedResourceClaimStatus."
	tests := map[string]struct {
		change func(*corev1.Pod)
		want   []string
	}{
		"healthy": {health("example.com/gpu", healthy), nil},
		"of a claim for an extended resource": {
			func(p *corev1.Pod) {
				health("claim:x/r", healthy)(p)
				p.Status.ExtendedResourceClaimStatus = &corev1.PodExtendedResourceClaimStatus{
					ResourceClaimName: "x",
					RequestMappings: []corev1.ContainerExtendedResourceRequest{
						{ContainerName: "c", ResourceName: "example.com/gpu", RequestName: "r"},
					},
				}
			}, nil,
		},
		"of a claim": {health("claim:a/b", healthy), nil},
		"unknown":    {health("example.com/tpu", healthy), []string{allocated + "name Invalid"}},
		"twice": {
			health("example.com/gpu", healthy,
				corev1.ResourceHealth{ResourceID: "1", Health: "Well", Message: new("")}),
			[]string{
				allocated + "resources[1].health NotSupported", allocated + "resources[1].message Required",
				allocated + "resources[1].resourceID Duplicate",
			},
		},
		"of an ephemeral container": {
			func(p *corev1.Pod) {
				health("example.com/gpu")(p)
				p.Status.EphemeralContainerStatuses, p.Status.ContainerStatuses = p.Status.ContainerStatuses,
					nil
			},
			[]string{"status.ephemeralContainerStatuses[0].allocatedResourcesStatus Forbidden"},
		},
		"extended": {
			func(p *corev1.Pod) {
				p.Status.ExtendedResourceClaimStatus = &corev1.PodExtendedResourceClaimStatus{
					ResourceClaimName: "x",
					RequestMappings: []corev1.ContainerExtendedResourceRequest{
						{ContainerName: "c", ResourceName: "example.com/gpu", RequestName: "r"},
					},
				}
			}, nil,
		},
		"extended, wrong": {
			func(p *corev1.Pod) {
				p.Status.ExtendedResourceClaimStatus = &corev1.PodExtendedResourceClaimStatus{
					RequestMappings: []corev1.ContainerExtendedResourceRequest{
						{ContainerName: "d", RequestName: "R"},
						{ContainerName: "c", ResourceName: "cpu", RequestName: "r"},
					},
				}
			},
			[]string{
				extended + "requestMappings[0].containerName Invalid",
				extended + "requestMappings[1].resourceName Invalid", extended + "requestName Invalid",
				extended + "resourceClaimName Required",
			},
		},
		"no address": {
			func(p *corev1.Pod) { p.Status.PodIPs = []corev1.PodIP{{IP: "10.0.0.1"}, {IP: "here"}} },
			[]string{"status.podIPs InternalError", "status.podIPs Invalid", "status.podIPs[1] Invalid"},
		},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			old := createdPod(func(p *corev1.Pod) {
				p.Spec.Containers[0].Resources = corev1.ResourceRequirements{
					Limits: amounts("example.com/gpu", "1"),
					Claims: []corev1.ResourceClaim{{Name: "a", Request: "b"}},
				}
			})
			p := old.DeepCopy()
			test.change(p)
			preparePodStatus(t.Context(), p, old)
			if got := kindtest.Causes(validatePodStatus(t.Context(), p, old)); !slices.Equal(got,
				test.want) {
				t.Errorf("got %q, want %q", got, test.want)
			}
		})
	}
}

func TestNominatedOnceBound(t *testing.T) {
	t.Parallel()
	old := createdPod(func(p *corev1.Pod) { p.Spec.NodeName = "n" })
	p := old.DeepCopy()
	p.Status.NominatedNodeName = "m"
	if got, want := kindtest.Causes(validatePodStatus(t.Context(), p, old)),
		[]string{"status.nominatedNodeName Forbidden"}; !slices.Equal(got, want) {
		t.Errorf("got %q, want %q", got, want)
	}
}

func TestStatusKeepsGenerations(t *testing.T) {
	t.Parallel()
	old := createdPod()
	old.Status.ObservedGeneration = 2
	old.Status.Conditions = []corev1.PodCondition{
		{Type: "A", ObservedGeneration: 1},
		{Type: "A", ObservedGeneration: 2},
		{Type: "B", ObservedGeneration: 3},
	}
	p := old.DeepCopy()
	p.Status.ObservedGeneration = 0
	p.Status.Conditions = []corev1.PodCondition{
		{Type: "B", ObservedGeneration: 4},
		{Type: "A"},
		{Type: "A"},
		{Type: "A"},
	}
	p.Status.VolumeHealth = []corev1.PodVolumeHealth{{}}
	old.Status.ResourceClaimStatuses = []corev1.PodResourceClaimStatus{{Name: "c"}}
	preparePodStatus(t.Context(), p, old)
	var got []int64
	for _, c := range p.Status.Conditions {
		got = append(got, c.ObservedGeneration)
	}
	if want := []int64{4, 1, 2, 0}; !slices.Equal(got, want) || p.Status.ObservedGeneration != 2 ||
		p.Status.VolumeHealth != nil {
		t.Errorf("got %d and %v, volumes %v", p.Status.ObservedGeneration, got, p.Status.VolumeHealth)
	}
	if len(p.Status.ResourceClaimStatuses) != 1 {
		t.Error("an update that omits resourceClaimStatuses clears them")
	}
	p.Status.ResourceClaimStatuses = []corev1.PodResourceClaimStatus{}
	if preparePodStatus(t.Context(), p, old); len(p.Status.ResourceClaimStatuses) > 0 {
		t.Error("an empty list does not clear resourceClaimStatuses")
	}
}

func TestResizesThatAreRefused(t *testing.T) {
	t.Parallel()
	tests := map[string]struct {
		old, change func(*corev1.Pod)
		want        []string
	}{
		"one more": {
			nil, func(p *corev1.Pod) {
				p.Spec.Containers = append(p.Spec.Containers, *p.Spec.Containers[0].DeepCopy())
				p.Spec.Containers[1].Name = "d"
			},
			[]string{"spec.containers Forbidden"},
		},
		"renamed": {nil, func(p *corev1.Pod) {
			p.Spec.Containers[0].Name = "d"
		}, []string{"spec.containers[0].name Forbidden"}},
		"static": {
			func(p *corev1.Pod) { p.Annotations = map[string]string{corev1.MirrorPodAnnotationKey: "x"} },
			func(*corev1.Pod) {},
			[]string{"[] Forbidden"},
		},
		"pod level": {nil, func(p *corev1.Pod) {
			p.Spec.Resources = &corev1.ResourceRequirements{Requests: amounts("cpu", "4")}
		}, nil},
		"no longer pod level": {
			func(p *corev1.Pod) {
				p.Spec.Resources = &corev1.ResourceRequirements{Requests: amounts("cpu", "4")}
			},
			func(p *corev1.Pod) { p.Spec.Resources = nil }, nil, // kept
		},
		"init container": {
			nil, func(p *corev1.Pod) { p.Spec.InitContainers[0].Resources.Requests = amounts("cpu", "2") },
			nil,
		},
		"init container that would restart": {
			func(p *corev1.Pod) {
				p.Spec.InitContainers[0].ResizePolicy = []corev1.ContainerResizePolicy{
					{ResourceName: "cpu", RestartPolicy: corev1.RestartContainer},
				}
			},
			func(p *corev1.Pod) { p.Spec.InitContainers[0].Resources.Requests = amounts("cpu", "2") },
			[]string{"spec.initContainers[0] Forbidden"},
		},
		"generateName that could be no name": {
			nil, func(p *corev1.Pod) { p.Namespace, p.GenerateName = "n", "Bad_" },
			[]string{"metadata.generateName Invalid"},
		},
		"disk of an init container": {
			nil, func(p *corev1.Pod) {
				p.Spec.InitContainers[0].Resources.Requests = amounts("cpu", "1", "ephemeral-storage", "2")
			},
			[]string{"spec.initContainers[0] Forbidden"},
		},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			old := createdPod(func(p *corev1.Pod) {
				p.Spec.Containers[0].Resources.Requests = amounts("cpu", "1")
				p.Spec.InitContainers = []corev1.Container{
					{Name: "a", Image: "i", Resources: corev1.ResourceRequirements{Requests: amounts("cpu", "1")}},
				}
				if test.old != nil {
					test.old(p)
				}
			})
			p := old.DeepCopy()
			test.change(p)
			prepareResize(t.Context(), p, old)
			if got := kindtest.Causes(validateResize(t.Context(), p, old)); !slices.Equal(got, test.want) {
				t.Errorf("got %q, want %q", got, test.want)
			}
		})
	}
}

func TestResourcesOfWholePods(t *testing.T) {
	t.Parallel()
	resources := func(limits, requests corev1.ResourceList) corev1.ResourceRequirements {
		return corev1.ResourceRequirements{Limits: limits, Requests: requests}
	}
	ofContainer := resources(amounts("cpu", "2", "memory", "1Gi", "hugepages-2Mi", "4Mi"), nil)
	for name, test := range map[string]struct{ of, container, want corev1.ResourceRequirements }{
		"only requests": {
			resources(nil, amounts("cpu", "3")), resources(amounts("memory", "1Gi"), nil),
			resources(amounts("memory", "1Gi"), amounts("cpu", "3", "memory", "1Gi")),
		},
		"with huge pages": {
			resources(nil, amounts("cpu", "3")), ofContainer,
			resources(amounts("cpu", "3", "memory", "1Gi", "hugepages-2Mi", "4Mi"),
				amounts("cpu", "3", "memory", "1Gi", "hugepages-2Mi", "4Mi")),
		},
		"only limits": {
			resources(amounts("cpu", "3"), nil), resources(nil, amounts("memory", "1Gi")),
			resources(amounts("cpu", "3"), amounts("cpu", "3", "memory", "1Gi")),
		},
	} {
		p := createdPod(func(p *corev1.Pod) {
			p.Spec.Containers[0].Resources = test.container
			p.Spec.Resources = &test.of
		})
		if got := *p.Spec.Resources; got.String() != test.want.String() ||
			len(validatePod(t.Context(), p)) > 0 {
			t.Errorf("%s: got %v, %v", name, got, validatePod(t.Context(), p))
		}
	}
}

func TestAppArmorOfAnnotations(t *testing.T) {
	t.Parallel()
	profile := func(value string) *corev1.AppArmorProfile {
		p := createdPod(func(p *corev1.Pod) {
			p.Annotations = map[string]string{
				corev1.DeprecatedAppArmorBetaContainerAnnotationKeyPrefix + "c": value,
			}
			p.Spec.SecurityContext = &corev1.PodSecurityContext{
				AppArmorProfile: &corev1.AppArmorProfile{Type: corev1.AppArmorProfileTypeRuntimeDefault},
			}
		})
		if p.Spec.Containers[0].SecurityContext == nil {
			return nil
		}
		return p.Spec.Containers[0].SecurityContext.AppArmorProfile
	}
	if got := profile("localhost/mine"); got == nil || *got.LocalhostProfile != "mine" {
		t.Errorf("mine: %v", got)
	}
	for _, value := range []string{"runtime/default", "localhost/ mine", "localhost/", "other"} {
		if got := profile(value); got != nil {
			t.Errorf("%s: %v", value, got)
		}
	}
}

func TestBindingNamesANode(t *testing.T) {
	t.Parallel()
	tests := map[string]struct {
		target corev1.ObjectReference
		want   []string
	}{
		"node":    {corev1.ObjectReference{Name: "n"}, nil},
		"nothing": {corev1.ObjectReference{Kind: "Node"}, []string{"target.name Required"}},
		"bad":     {corev1.ObjectReference{Name: "N_"}, []string{"target.name Invalid"}},
		"rack": {
			corev1.ObjectReference{Kind: "Rack", Name: "N_"},
			[]string{"target.kind NotSupported"},
		},
	}
	for name, test := range tests {
		if got := kindtest.Causes(validateTarget(&test.target)); !slices.Equal(got, test.want) {
			t.Errorf("%s: got %q, want %q", name, got, test.want)
		}
	}
	p := createdPod()
	binding := &corev1.Binding{
		ObjectMeta: metav1.ObjectMeta{Labels: map[string]string{"topology.kubernetes.io/zone": "z"}},
		Target:     corev1.ObjectReference{Name: "n"},
	}
	if err := assign(p, binding); err != nil || p.Labels["topology.kubernetes.io/zone"] != "z" {
		t.Errorf("labels %v, %v", p.Labels, err)
	}
}

func TestUpdatesThatEndEarly(t *testing.T) {
	t.Parallel()
	old := runningPod(func(p *corev1.Pod) { p.Spec.ActiveDeadlineSeconds = new(int64(4)) })
	p := old.DeepCopy()
	p.Spec.ActiveDeadlineSeconds = new(int64(5))
	p.Spec.NodeName = "n"
	if got, want := kindtest.Causes(validatePodUpdate(t.Context(), p, old)),
		[]string{"spec.activeDeadlineSeconds Invalid"}; !slices.Equal(got, want) {
		t.Errorf("got %q, want %q", got, want)
	}
	if warnings := podWarnings(t.Context(), p, old); len(warnings) > 0 {
		t.Errorf("warnings about an update: %q", warnings)
	}
	p.Spec.ImagePullSecrets = []corev1.LocalObjectReference{{}}
	if got, want := podWarnings(t.Context(), p, nil), podspec.PodWarnings(p); len(want) == 0 ||
		!slices.Equal(got, want) {
		t.Errorf("warnings about a new pod: got %q", got)
	}
}

func TestDryRunsOfEvictions(t *testing.T) {
	t.Parallel()
	dry := []string{metav1.DryRunAll}
	tests := map[string]struct {
		content *metav1.DeleteOptions
		request []string
		want    []string
		wrong   bool
	}{
		"neither":      {nil, nil, nil, false},
		"request":      {nil, dry, dry, false},
		"request only": {&metav1.DeleteOptions{}, dry, dry, false},
		"content":      {&metav1.DeleteOptions{DryRun: dry}, nil, dry, false},
		"both":         {&metav1.DeleteOptions{DryRun: dry}, dry, dry, false},
		"at odds":      {&metav1.DeleteOptions{DryRun: []string{"Some"}}, dry, nil, true},
	}
	for name, test := range tests {
		got, err := deletionOf(&policyv1.Eviction{DeleteOptions: test.content},
			&metav1.CreateOptions{DryRun: test.request})
		if (err != nil) != test.wrong || err == nil && !slices.Equal(got.DryRun, test.want) {
			t.Errorf("%s: %v, %v", name, got, err)
		}
	}
}
