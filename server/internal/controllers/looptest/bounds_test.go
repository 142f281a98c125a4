package looptest

import (
	"context"
	"fmt"
	"math"
	"strings"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	resourcev1 "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"

	"github.com/kinproc/kinproc/server"
	"github.com/kinproc/kinproc/server/internal/controllers/nodes/scheduler"
	"github.com/kinproc/kinproc/server/internal/controllers/workloadtest"
	"github.com/kinproc/kinproc/server/servertest"
)

// boundsPods waits until the pods of an app are so many.
func boundsPods(t *testing.T, client kubernetes.Interface, namespace, app string, want int) {
	t.Helper()
	workloadtest.Await(t, fmt.Sprintf("%d pods of %s", want, app),
		func(ctx context.Context) (int, error) {
			list, err := client.CoreV1().Pods(namespace).List(ctx,
				metav1.ListOptions{LabelSelector: "app=" + app})
			if err != nil {
				return 0, err
			}
			return len(list.Items), nil
		}, func(n int) bool { return n == want })
}

// TestBoundsStatefulSet has sets of two billion pods. Each pass works on those that there are.
func TestBoundsStatefulSet(t *testing.T) {
	t.Parallel()
	client, namespace := shared(t)
	const quota = 12
	workloadtest.Must(client.CoreV1().ResourceQuotas(namespace).Create(t.Context(),
		&corev1.ResourceQuota{
			ObjectMeta: metav1.ObjectMeta{Name: "pods"},
			Spec: corev1.ResourceQuotaSpec{
				Hard: corev1.ResourceList{corev1.ResourcePods: resource.MustParse(fmt.Sprint(quota))},
			},
		}, metav1.CreateOptions{}))(t)
	sets := client.AppsV1().StatefulSets(namespace)
	for _, policy := range []appsv1.PodManagementPolicyType{
		appsv1.OrderedReadyPodManagement, appsv1.ParallelPodManagement,
	} {
		app := strings.ToLower(string(policy))
		labels := map[string]string{"app": app}
		workloadtest.Must(sets.Create(t.Context(), &appsv1.StatefulSet{
			ObjectMeta: metav1.ObjectMeta{Name: app},
			Spec: appsv1.StatefulSetSpec{
				Replicas: new(int32(math.MaxInt32)), ServiceName: "none", PodManagementPolicy: policy,
				Selector: &metav1.LabelSelector{MatchLabels: labels},
				Template: workloadtest.Template(labels),
				Ordinals: &appsv1.StatefulSetOrdinals{Start: math.MaxInt32},
				UpdateStrategy: appsv1.StatefulSetUpdateStrategy{
					Type: appsv1.RollingUpdateStatefulSetStrategyType,
					RollingUpdate: &appsv1.RollingUpdateStatefulSetStrategy{
						Partition: new(int32(math.MaxInt32)),
					},
				},
			},
		}, metav1.CreateOptions{}))(t)
		want := 1 // the first is not ready
		if policy == appsv1.ParallelPodManagement {
			want = quota - 1
		}
		boundsPods(t, client, namespace, app, want)
		workloadtest.Await(t, "the status of "+app, func(ctx context.Context) (*appsv1.StatefulSet, error) {
			return sets.Get(ctx, app, metav1.GetOptions{})
		}, func(s *appsv1.StatefulSet) bool { return int(s.Status.Replicas) == want })
		workloadtest.Must(client.CoreV1().Pods(namespace).Get(t.Context(), app+"-2147483647",
			metav1.GetOptions{}))(t)
	}
}

// TestBoundsIndexedJob has a Job whose success policy is about two billion indexes.
func TestBoundsIndexedJob(t *testing.T) {
	t.Parallel()
	client, namespace := shared(t)
	labels := map[string]string{"app": "indexes"}
	template := workloadtest.Template(labels)
	template.Spec.RestartPolicy = corev1.RestartPolicyNever
	jobs := client.BatchV1().Jobs(namespace)
	workloadtest.Must(jobs.Create(t.Context(), &batchv1.Job{
		ObjectMeta: metav1.ObjectMeta{Name: "indexes"},
		Spec: batchv1.JobSpec{
			Parallelism: new(int32(1)), Completions: new(int32(math.MaxInt32)),
			CompletionMode: new(batchv1.IndexedCompletion),
			SuccessPolicy: &batchv1.SuccessPolicy{Rules: []batchv1.SuccessPolicyRule{
				{SucceededIndexes: new("0-2147483646")},
				{SucceededIndexes: new("1-2147483646"), SucceededCount: new(int32(1))},
			}},
			Template: template,
		},
	}, metav1.CreateOptions{}))(t)
	for i, completed := range []string{"0", "0,1"} {
		pod := workloadtest.Await(t, fmt.Sprintf("the pod of index %d", i),
			func(ctx context.Context) (*corev1.PodList, error) {
				return client.CoreV1().Pods(namespace).List(ctx, metav1.ListOptions{
					LabelSelector: fmt.Sprintf("%s=%d", batchv1.JobCompletionIndexAnnotation, i),
				})
			}, func(list *corev1.PodList) bool { return len(list.Items) == 1 }).Items[0]
		pod.Status.Phase = corev1.PodSucceeded
		workloadtest.Must(client.CoreV1().Pods(namespace).UpdateStatus(t.Context(), &pod,
			metav1.UpdateOptions{}))(t)
		workloadtest.Await(t, "completed indexes "+completed,
			func(ctx context.Context) (*batchv1.Job, error) {
				return jobs.Get(ctx, "indexes", metav1.GetOptions{})
			}, func(job *batchv1.Job) bool { return job.Status.CompletedIndexes == completed })
	}
	workloadtest.Await(t, "completion by the second rule",
		func(ctx context.Context) (*batchv1.Job, error) {
			return jobs.Get(ctx, "indexes", metav1.GetOptions{})
		}, func(job *batchv1.Job) bool {
			for _, c := range job.Status.Conditions {
				if c.Type == batchv1.JobComplete && c.Status == corev1.ConditionTrue {
					return c.Message == "Matched rules at index 1"
				}
			}
			return false
		})
}

// boundsDevices is a control plane whose scheduler has a short limit for the allocation of devices.
type boundsDevices struct {
	*testing.T
	kubernetes.Interface
}

func (c boundsDevices) claim(name string, requests ...resourcev1.DeviceRequest) {
	c.Helper()
	workloadtest.Must(c.ResourceV1().ResourceClaims(workloadtest.Namespace).Create(c.Context(),
		&resourcev1.ResourceClaim{
			ObjectMeta: metav1.ObjectMeta{Name: name},
			Spec:       resourcev1.ResourceClaimSpec{Devices: resourcev1.DeviceClaim{Requests: requests}},
		}, metav1.CreateOptions{}))(c)
}

// pod creates a pod that needs a claim, unless that is empty.
func (c boundsDevices) pod(name, claim string) {
	c.Helper()
	pod := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: workloadtest.Template(nil).Spec,
	}
	if claim != "" {
		pod.Spec.ResourceClaims = []corev1.PodResourceClaim{{Name: "c", ResourceClaimName: &claim}}
	}
	workloadtest.Must(c.CoreV1().Pods(workloadtest.Namespace).Create(c.Context(), pod,
		metav1.CreateOptions{}))(c)
}

func (c boundsDevices) await(name, what string, is func(*corev1.Pod) bool) {
	c.Helper()
	workloadtest.Await(c, "the pod "+name+" "+what, func(ctx context.Context) (*corev1.Pod, error) {
		return c.CoreV1().Pods(workloadtest.Namespace).Get(ctx, name, metav1.GetOptions{})
	}, is)
}

func boundsOnNode(p *corev1.Pod) bool { return p.Spec.NodeName != "" }

// boundsRequest asks for devices whose number is below a limit.
func boundsRequest(name string, count int64, below int) resourcev1.DeviceRequest {
	return resourcev1.DeviceRequest{Name: name, Exactly: &resourcev1.ExactDeviceRequest{
		DeviceClassName: "gpu", AllocationMode: resourcev1.DeviceAllocationModeExactCount, Count: count,
		Selectors: []resourcev1.DeviceSelector{{CEL: &resourcev1.CELDeviceSelector{
			Expression: fmt.Sprintf("device.attributes['gpu.example.com'].number < %d", below),
		}}},
	}}
}

// TestBoundsDevices has claims for which the allocator finds devices only after trying more
// combinations than anybody can. They keep no other pod waiting.
func TestBoundsDevices(t *testing.T) {
	t.Parallel()
	s := servertest.Run(t, func(o *server.Options) {
		o.Controllers = []string{"serviceaccount-controller"}
		o.SimulatedNodes = 1
		o.RuntimeConfig = map[string]string{"resource.k8s.io/v1beta2": "true"} // as schedulerConnect
	})
	c := boundsDevices{t, workloadtest.Client(t, s)}
	ctx := t.Context()
	workloadtest.Must(c.ResourceV1().DeviceClasses().Create(ctx, &resourcev1.DeviceClass{
		ObjectMeta: metav1.ObjectMeta{Name: "gpu"},
	}, metav1.CreateOptions{}))(t)
	const devices = 32
	slice := &resourcev1.ResourceSlice{
		ObjectMeta: metav1.ObjectMeta{Name: "gpus"},
		Spec: resourcev1.ResourceSliceSpec{
			Driver: "gpu.example.com", NodeName: new("simulated-0"),
			Pool: resourcev1.ResourcePool{Name: "p", ResourceSliceCount: 1},
		},
	}
	for i := range devices {
		slice.Spec.Devices = append(slice.Spec.Devices, resourcev1.Device{
			Name: fmt.Sprint("d", i),
			Attributes: map[resourcev1.QualifiedName]resourcev1.DeviceAttribute{
				"number": {IntValue: new(int64(i))},
			},
		})
	}
	workloadtest.Must(c.ResourceV1().ResourceSlices().Create(ctx, slice, metav1.CreateOptions{}))(t)
	hard := func(name string) {
		// The second request needs the first half of the devices, which the first one takes first.
		c.claim(name, boundsRequest("any", devices/2, devices), boundsRequest("low", devices/2, devices/2))
		c.pod(name, name)
	}
	run := func(limit time.Duration) (stop func()) {
		d, _ := workloadtest.Dependencies(c)
		limits := scheduler.Defaults()
		limits.Devices = limit
		return workloadtest.Start(t, d, scheduler.Loop(limits))
	}
	stop := run(time.Hour)
	workloadtest.Await(t, "the service account", func(ctx context.Context) (bool, error) {
		_, err := c.CoreV1().ServiceAccounts(workloadtest.Namespace).Get(ctx, "default",
			metav1.GetOptions{})
		return err == nil, nil
	}, func(ok bool) bool { return ok })

	// Nobody waits for the hour.
	hard("hard")
	hard("harder")
	c.pod("plain", "")
	c.await("plain", "on a node", boundsOnNode)
	c.claim("easy", boundsRequest("one", 1, devices))
	c.pod("easy", "easy")
	c.await("easy", "on a node", boundsOnNode)
	// A search ends with the pod or with the claim, and another pod gets its turn.
	workloadtest.OK(t, c.CoreV1().Pods(workloadtest.Namespace).Delete(ctx, "hard",
		metav1.DeleteOptions{}))
	workloadtest.OK(t, c.ResourceV1().ResourceClaims(workloadtest.Namespace).Delete(ctx, "harder",
		metav1.DeleteOptions{}))
	c.claim("harder", boundsRequest("one", 1, devices))
	c.await("harder", "on a node", boundsOnNode)
	stop()

	run(200 * time.Millisecond)
	hard("hardest")
	c.await("hardest", "refused", func(p *corev1.Pod) bool {
		condition := podCondition(p, corev1.PodScheduled)
		return condition.Reason == corev1.PodReasonSchedulerError &&
			condition.Message == `running "DynamicResources" filter plugin: node simulated-0: `+
				"timed out trying to allocate devices"
	})
}
