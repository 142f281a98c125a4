package legacy

import (
	"context"
	"encoding/json"
	"net/url"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/kinproc/kinproc/chain/kind/kindtest"
)

func runningPod(change ...func(*corev1.Pod)) *corev1.Pod {
	p := &corev1.Pod{Spec: corev1.PodSpec{Containers: []corev1.Container{{Name: "c", Image: "i"}}}}
	p.Name, p.Namespace, p.Generation = "x", "default", 1
	for _, c := range change {
		c(p)
	}
	defaultPod(p)
	return p
}

func createdPod(change ...func(*corev1.Pod)) *corev1.Pod {
	p := runningPod(change...)
	preparePod(context.Background(), p)
	return p
}

func gated(p *corev1.Pod) {
	p.Spec.SchedulingGates = []corev1.PodSchedulingGate{{Name: "a"}, {Name: "b"}}
	p.Spec.NodeSelector = map[string]string{"zone": "1"}
}

func TestPodUpdates(t *testing.T) {
	t.Parallel()
	tests := map[string]struct {
		old    func(*corev1.Pod)
		change func(*corev1.Pod)
		want   []string
	}{
		"image": {nil, func(p *corev1.Pod) { p.Spec.Containers[0].Image = "j" }, nil},
		"no image": {nil, func(p *corev1.Pod) {
			p.Spec.Containers[0].Image = ""
		}, []string{"spec.containers[0].image Required"}},
		"command": {nil, func(p *corev1.Pod) {
			p.Spec.Containers[0].Command = []string{"x"}
		}, []string{"spec Forbidden"}},
		"deadline": {nil, func(p *corev1.Pod) {
			p.Spec.ActiveDeadlineSeconds = new(int64(5))
		}, nil},
		"longer deadline": {
			func(p *corev1.Pod) { p.Spec.ActiveDeadlineSeconds = new(int64(4)) },
			func(p *corev1.Pod) { p.Spec.ActiveDeadlineSeconds = new(int64(5)) },
			[]string{"spec.activeDeadlineSeconds Invalid"},
		},
		"no deadline": {
			func(p *corev1.Pod) { p.Spec.ActiveDeadlineSeconds = new(int64(4)) },
			func(p *corev1.Pod) { p.Spec.ActiveDeadlineSeconds = nil },
			[]string{"spec.activeDeadlineSeconds Invalid"},
		},
		"toleration": {nil, func(p *corev1.Pod) {
			p.Spec.Tolerations = []corev1.Toleration{{Key: "a", Operator: "Exists"}}
		}, nil},
		"less toleration": {
			func(p *corev1.Pod) { p.Spec.Tolerations = []corev1.Toleration{{Key: "a", Operator: "Exists"}} },
			func(p *corev1.Pod) { p.Spec.Tolerations = nil },
			[]string{"spec.tolerations Forbidden"},
		},
		"grace period": {
			func(p *corev1.Pod) { p.Spec.TerminationGracePeriodSeconds = new(int64(-1)) },
			func(p *corev1.Pod) { p.Spec.TerminationGracePeriodSeconds = new(int64(1)) }, nil,
		},
		"open a gate": {gated, func(p *corev1.Pod) {
			p.Spec.SchedulingGates = p.Spec.SchedulingGates[:1]
		}, nil},
		"another gate": {gated, func(p *corev1.Pod) {
			p.Spec.SchedulingGates[1].Name = "c"
		}, []string{"spec.schedulingGates[1].name Forbidden"}},
		"narrow down": {gated, func(p *corev1.Pod) { p.Spec.NodeSelector["disk"] = "ssd" }, nil},
		"go elsewhere": {gated, func(p *corev1.Pod) {
			p.Spec.NodeSelector["zone"] = "2"
		}, []string{"spec.nodeSelector Invalid"}},
		"ungated": {nil, func(p *corev1.Pod) {
			p.Spec.NodeSelector = map[string]string{"zone": "1"}
		}, []string{"spec Forbidden"}},
		"mirror": {nil, func(p *corev1.Pod) {
			p.Annotations = map[string]string{corev1.MirrorPodAnnotationKey: "x"}
		}, []string{
			"metadata.annotations[kubernetes.io/config.mirror] Forbidden",
			"metadata.annotations[kubernetes.io/config.mirror] Invalid",
		}},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			old := runningPod()
			if test.old != nil {
				old = runningPod(test.old)
			}
			p := old.DeepCopy()
			test.change(p)
			if got := kindtest.Causes(validatePodUpdate(t.Context(), p, old)); !slices.Equal(got,
				test.want) {
				t.Errorf("got %q, want %q", got, test.want)
			}
		})
	}
}

func TestPodResize(t *testing.T) {
	t.Parallel()
	sized := func(cpu string) func(*corev1.Pod) {
		return func(p *corev1.Pod) {
			p.Spec.Containers[0].Resources.Requests = corev1.ResourceList{
				corev1.ResourceCPU: resource.MustParse(cpu),
			}
		}
	}
	old := createdPod(sized("1"))
	resize := func(change func(*corev1.Pod)) (*corev1.Pod, []string) {
		p := old.DeepCopy()
		change(p)
		prepareResize(t.Context(), p, old)
		return p, kindtest.Causes(validateResize(t.Context(), p, old))
	}
	p, got := resize(func(p *corev1.Pod) {
		sized("2")(p)
		p.Spec.Containers[0].Image = "other"
		p.Labels = map[string]string{"a": "b"}
	})
	if len(got) > 0 || p.Spec.Containers[0].Image != "i" || p.Labels != nil || p.Generation != 2 {
		t.Errorf("more cpu: %q, image %s, labels %v, generation %d",
			got, p.Spec.Containers[0].Image, p.Labels, p.Generation)
	}
	if _, got = resize(func(p *corev1.Pod) {
		p.Spec.Containers[0].Resources.Requests = nil
	}); !slices.Equal(got,
		[]string{"spec Invalid", "spec.containers[0].resources.requests Forbidden"}) {
		t.Errorf("no cpu: %q", got)
	}
	if _, got = resize(func(p *corev1.Pod) {
		p.Spec.Containers[0].Resources.Requests["example.com/gpu"] = resource.MustParse("1")
		p.Spec.Containers[0].Resources.Limits = corev1.ResourceList{
			"example.com/gpu": resource.MustParse("1"),
		}
	}); !slices.Equal(got, []string{"spec Forbidden"}) {
		t.Errorf("a GPU: %q", got)
	}
}

func TestResizeNeedsANodeThatCan(t *testing.T) {
	t.Parallel()
	old := createdPod()
	old.Status.ContainerStatuses = []corev1.ContainerStatus{
		{Name: "c", State: corev1.ContainerState{Running: &corev1.ContainerStateRunning{}}},
	}
	if got := kindtest.Causes(validateResize(t.Context(), old.DeepCopy(), old)); !slices.Equal(got,
		[]string{"spec Forbidden"}) {
		t.Errorf("an old kubelet: %q", got)
	}
	old.Status.ContainerStatuses[0].Resources = &corev1.ResourceRequirements{}
	if got := kindtest.Causes(validateResize(t.Context(), old.DeepCopy(), old)); len(got) > 0 {
		t.Errorf("a new kubelet: %q", got)
	}
}

func TestEphemeralContainers(t *testing.T) {
	t.Parallel()
	debug := corev1.EphemeralContainer{
		EphemeralContainerCommon: corev1.EphemeralContainerCommon{Name: "d", Image: "i"},
	}
	old := createdPod(func(p *corev1.Pod) {
		p.Spec.EphemeralContainers = []corev1.EphemeralContainer{debug}
	})
	p := old.DeepCopy()
	p.Spec.EphemeralContainers[0].Image = "j"
	prepareEphemeralContainers(t.Context(), p, old)
	if got := kindtest.Causes(validateEphemeralContainers(t.Context(), p, old)); !slices.Equal(got,
		[]string{"spec.ephemeralContainers Forbidden"}) {
		t.Errorf("changed: %q", got)
	}
	p = old.DeepCopy()
	p.Spec.EphemeralContainers = nil
	if got := kindtest.Causes(validateEphemeralContainers(t.Context(), p, old)); !slices.Equal(got,
		[]string{"spec.ephemeralContainers Forbidden"}) {
		t.Errorf("removed: %q", got)
	}
}

func TestPodStatusUpdates(t *testing.T) {
	t.Parallel()
	ended := corev1.ContainerStatus{
		Name:  "c",
		State: corev1.ContainerState{Terminated: &corev1.ContainerStateTerminated{}},
	}
	tests := map[string]struct {
		change func(*corev1.Pod)
		want   []string
	}{
		"same": {func(*corev1.Pod) {}, nil},
		"restarted": {func(p *corev1.Pod) {
			p.Status.ContainerStatuses[0].State = corev1.ContainerState{}
		}, []string{"status.containerStatuses[0].state Forbidden"}},
		"QoS": {func(p *corev1.Pod) {
			p.Status.QOSClass = corev1.PodQOSGuaranteed
		}, []string{"status.qosClass Invalid"}},
		"one family": {func(p *corev1.Pod) {
			p.Status.PodIPs = []corev1.PodIP{{IP: "10.0.0.1"}, {IP: "10.0.0.2"}}
		}, []string{"status.podIPs Invalid"}},
		"dual stack": {func(p *corev1.Pod) {
			p.Status.PodIPs = []corev1.PodIP{{IP: "10.0.0.1"}, {IP: "fd00::1"}}
		}, nil},
		"host": {func(p *corev1.Pod) {
			p.Status.HostIPs = []corev1.HostIP{{IP: "10.0.0.1"}}
		}, []string{"status.hostIPs[0].ip Invalid"}},
		"nominated": {func(p *corev1.Pod) {
			p.Status.NominatedNodeName = "A"
		}, []string{"status.nominatedNodeName Invalid"}},
		"other claim": {func(p *corev1.Pod) {
			p.Status.ResourceClaimStatuses = []corev1.PodResourceClaimStatus{{Name: "x"}}
		}, []string{"status.resourceClaimStatuses[0].name Invalid"}},
		"generation": {func(p *corev1.Pod) {
			p.Status.ObservedGeneration = -1
		}, []string{"status.observedGeneration Invalid"}},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			old := createdPod(func(p *corev1.Pod) { p.Spec.RestartPolicy = corev1.RestartPolicyNever })
			old.Status.ContainerStatuses = []corev1.ContainerStatus{ended}
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

func TestPodGracePeriod(t *testing.T) {
	t.Parallel()
	scheduled := func(p *corev1.Pod) { p.Spec.NodeName = "n" }
	for name, test := range map[string]struct {
		pod  *corev1.Pod
		asks *int64
		want int64
	}{
		"unscheduled": {createdPod(), new(int64(5)), 0},
		"default":     {createdPod(scheduled), nil, 30},
		"asked":       {createdPod(scheduled), new(int64(5)), 5},
		"negative":    {createdPod(scheduled), new(int64(-5)), 1},
		"finished": {func() *corev1.Pod {
			p := createdPod(scheduled)
			p.Status.Phase = corev1.PodSucceeded
			return p
		}(), nil, 0},
	} {
		options := &metav1.DeleteOptions{GracePeriodSeconds: test.asks}
		if !podGracePeriod(t.Context(), test.pod, options) || *options.GracePeriodSeconds != test.want {
			t.Errorf("%s: got %d, want %d", name, *options.GracePeriodSeconds, test.want)
		}
	}
}

func TestPodQOS(t *testing.T) {
	t.Parallel()
	for spec, want := range map[string]corev1.PodQOSClass{
		`{}`:                                    corev1.PodQOSBestEffort,
		`{"limits":{"cpu":"1"}}`:                corev1.PodQOSBurstable,
		`{"requests":{"cpu":"1"}}`:              corev1.PodQOSBurstable,
		`{"limits":{"cpu":"1","memory":"1Gi"}}`: corev1.PodQOSGuaranteed,
		`{"limits":{"cpu":"1","memory":"1Gi"},"requests":{"cpu":"1"}}`:    corev1.PodQOSGuaranteed,
		`{"limits":{"cpu":"1","memory":"1Gi"},"requests":{"cpu":"500m"}}`: corev1.PodQOSBurstable,
		`{"limits":{"example.com/gpu":"1"}}`:                              corev1.PodQOSBestEffort,
	} {
		p := createdPod(func(p *corev1.Pod) {
			if err := json.Unmarshal([]byte(spec), &p.Spec.Containers[0].Resources); err != nil {
				t.Fatal(err)
			}
		})
		if p.Status.QOSClass != want {
			t.Errorf("%s: got %s, want %s", spec, p.Status.QOSClass, want)
		}
	}
	if p := createdPod(func(p *corev1.Pod) {
		p.Status.QOSClass = "Mine"
	}); p.Status.QOSClass != "Mine" {
		t.Errorf("got %s, want the class that the client sets", p.Status.QOSClass)
	}
}

func TestPodRow(t *testing.T) {
	t.Parallel()
	waiting := func(reason string) corev1.ContainerState {
		return corev1.ContainerState{Waiting: &corev1.ContainerStateWaiting{Reason: reason}}
	}
	ended := func(code int32, reason string) corev1.ContainerState {
		return corev1.ContainerState{
			Terminated: &corev1.ContainerStateTerminated{ExitCode: code, Reason: reason},
		}
	}
	running := corev1.ContainerState{Running: &corev1.ContainerStateRunning{}}
	always := corev1.ContainerRestartPolicyAlways
	for name, test := range map[string]struct {
		change func(*corev1.Pod)
		want   string
	}{
		"pending": {func(*corev1.Pod) {}, "0/1 Pending 0"},
		"gated": {func(p *corev1.Pod) {
			p.Status.Conditions = []corev1.PodCondition{
				{Type: corev1.PodScheduled, Reason: "SchedulingGated"},
			}
		}, "0/1 SchedulingGated 0"},
		"crashing": {func(p *corev1.Pod) {
			last := ended(1, "Error")
			last.Terminated.FinishedAt = metav1.NewTime(time.Now().Add(-5*time.Minute - time.Second))
			p.Status.ContainerStatuses = []corev1.ContainerStatus{
				{Name: "c", RestartCount: 3, State: waiting("CrashLoopBackOff"), LastTerminationState: last},
			}
		}, "0/1 CrashLoopBackOff 3 (5m1s ago)"},
		"signal": {func(p *corev1.Pod) {
			s := ended(137, "")
			s.Terminated.Signal = 9
			p.Status.ContainerStatuses = []corev1.ContainerStatus{{Name: "c", State: s}}
		}, "0/1 Signal:9 0"},
		"init": {func(p *corev1.Pod) {
			p.Spec.InitContainers = []corev1.Container{{Name: "a"}, {Name: "b"}}
			p.Status.InitContainerStatuses = []corev1.ContainerStatus{
				{Name: "a", State: ended(0, "Completed")},
				{Name: "b", State: running},
			}
		}, "0/1 Init:1/2 0"},
		"sidecar": {func(p *corev1.Pod) {
			p.Spec.InitContainers = []corev1.Container{{Name: "a", RestartPolicy: &always}}
			p.Status.InitContainerStatuses = []corev1.ContainerStatus{
				{Name: "a", State: running, Ready: true, Started: new(true)},
			}
			p.Status.ContainerStatuses = []corev1.ContainerStatus{{Name: "c", State: running, Ready: true}}
			p.Status.Phase = corev1.PodRunning
		}, "2/2 Running 0"},
		"completed beside a running one": {func(p *corev1.Pod) {
			p.Spec.Containers = append(p.Spec.Containers, corev1.Container{Name: "d"})
			p.Status.ContainerStatuses = []corev1.ContainerStatus{
				{Name: "c", State: ended(0, "Completed")},
				{Name: "d", State: running, Ready: true},
			}
		}, "1/2 NotReady 0"},
		"deleted": {func(p *corev1.Pod) { p.DeletionTimestamp = new(metav1.Now()) }, "0/1 Terminating 0"},
		"lost": {func(p *corev1.Pod) {
			p.DeletionTimestamp, p.Status.Reason = new(metav1.Now()), "NodeLost"
		}, "0/1 Unknown 0"},
	} {
		p := createdPod()
		test.change(p)
		row := podRow(p)
		if got := strings.Join([]string{
			row[1].(string), row[2].(string), row[3].(string),
		}, " "); got != test.want {
			t.Errorf("%s: got %q, want %q", name, got, test.want)
		}
	}
}

func TestQueryParameters(t *testing.T) {
	t.Parallel()
	scheme := runtime.NewScheme()
	if err := addToScheme(scheme); err != nil {
		t.Fatal(err)
	}
	query := url.Values{
		"container": {"c"},
		"tailLines": {"5"},
		"follow":    {"true"},
		"sinceTime": {"2026-01-02T03:04:05Z"},
	}
	log := &corev1.PodLogOptions{}
	if err := runtime.NewParameterCodec(scheme).DecodeParameters(query,
		corev1.SchemeGroupVersion, log); err != nil {
		t.Fatal(err)
	}
	if log.Container != "c" || *log.TailLines != 5 || !log.Follow || log.SinceTime.Year() != 2026 ||
		log.Stream != nil {
		t.Errorf("log: %+v", log)
	}
	exec := &corev1.PodExecOptions{}
	if err := runtime.NewParameterCodec(scheme).DecodeParameters(url.Values{"command": {"ls", "-l"}},
		corev1.SchemeGroupVersion, exec); err != nil {
		t.Fatal(err)
	}
	if !slices.Equal(exec.Command, []string{"ls", "-l"}) || !exec.Stdout {
		t.Errorf("exec: %+v", exec)
	}
	if err := runtime.NewParameterCodec(scheme).DecodeParameters(url.Values{"tailLines": {"x"}},
		corev1.SchemeGroupVersion, log); err == nil {
		t.Error("an invalid number was accepted")
	}
}
