package looptest

import (
	"context"
	"fmt"
	"math"
	"reflect"
	"runtime/metrics"
	"strings"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/restmapper"
	"sigs.k8s.io/yaml"

	"github.com/kinproc/kinproc/server"
	"github.com/kinproc/kinproc/server/internal/controllers/workloadtest"
	"github.com/kinproc/kinproc/server/servertest"
)

const (
	// extremesMemory is by how much the memory in use may grow: far more than it does, and far less
	// than what sizes with the numbers of an object.
	extremesMemory = 2 << 30
	// extremesPatience is how long a rollout of somebody else may take on a busy machine with the
	// race detector. On an idle one, it should take less than 5 s.
	extremesPatience = time.Minute
)

// extremesTemplate is the template of the pods of the objects below.
const extremesTemplate = `{metadata: {labels: {app: extreme}}, spec: {
	terminationGracePeriodSeconds: 0, containers: [{name: a, image: a}]}}`

// extremesObjects are objects whose numbers are replaced, one at a time, by extreme ones. A number
// that an object may have, but has not, is added.
var extremesObjects = []string{
	`{apiVersion: apps/v1, kind: Deployment, spec: {replicas: 1, strategy: {rollingUpdate: {
		maxSurge: 1, maxUnavailable: 1}}, selector: {matchLabels: {app: extreme}}, template: TEMPLATE}}`,
	`{apiVersion: apps/v1, kind: ReplicaSet, spec: {
		selector: {matchLabels: {app: extreme}}, template: TEMPLATE}}`,
	`{apiVersion: v1, kind: ReplicationController, spec: {template: TEMPLATE}}`,
	`{apiVersion: apps/v1, kind: StatefulSet, spec: {serviceName: a, ordinals: {start: 1},
		updateStrategy: {rollingUpdate: {partition: 0}},
		selector: {matchLabels: {app: extreme}}, template: TEMPLATE}}`,
	`{apiVersion: apps/v1, kind: StatefulSet, spec: {serviceName: a, podManagementPolicy: Parallel,
		selector: {matchLabels: {app: extreme}}, template: TEMPLATE}}`,
	`{apiVersion: apps/v1, kind: DaemonSet, spec: {updateStrategy: {rollingUpdate: {maxSurge: 0}},
		selector: {matchLabels: {app: extreme}}, template: TEMPLATE}}`,
	`{apiVersion: batch/v1, kind: Job, spec: {completions: 2, podFailurePolicy: {rules: [
		{action: Ignore, onExitCodes: {operator: In, values: [1]}}]}, template: JOB}}`,
	`{apiVersion: batch/v1, kind: Job, spec: {completionMode: Indexed, completions: 2147483647,
		backoffLimitPerIndex: 1, maxFailedIndexes: 1, parallelism: 1, successPolicy: {rules: [
		{succeededIndexes: "0-2147483646", succeededCount: 2147483647}]}, template: JOB}}`,
	`{apiVersion: batch/v1, kind: CronJob, spec: {schedule: "* * * * *", jobTemplate: {spec: {
		template: JOB}}}}`,
	`{apiVersion: v1, kind: Pod, metadata: {annotations: {kinproc.dev/exit-code: "1",
		kinproc.dev/back-off: 1ms, kinproc.dev/start-delay: 2562047h, kinproc.dev/run-for: 0s}}, spec: {
		tolerations: [{key: a, operator: Exists, effect: NoExecute, tolerationSeconds: 1}],
		topologySpreadConstraints: [{maxSkew: 1, topologyKey: kubernetes.io/hostname,
			whenUnsatisfiable: DoNotSchedule, labelSelector: {matchLabels: {app: extreme}}}],
		affinity: {podAffinity: {preferredDuringSchedulingIgnoredDuringExecution: [{weight: 1,
			podAffinityTerm: {topologyKey: kubernetes.io/hostname,
				labelSelector: {matchLabels: {app: extreme}}}}]}},
		containers: [{name: a, image: a, ports: [{containerPort: 1}],
			readinessProbe: {exec: {command: [a]}}, resources: {requests: {cpu: 1m}}}]}}`,
	`{apiVersion: autoscaling/v2, kind: HorizontalPodAutoscaler, spec: {
		scaleTargetRef: {apiVersion: apps/v1, kind: Deployment, name: scaled},
		minReplicas: 1, maxReplicas: 2147483647, behavior: {
			scaleUp: {policies: [{type: Percent, value: 1, periodSeconds: 1}]},
			scaleDown: {policies: [{type: Pods, value: 1, periodSeconds: 1}]}},
		metrics: [{type: Resource, resource: {name: cpu, target: {
			type: Utilization, averageUtilization: 1}}}]}}`,
	`{apiVersion: policy/v1, kind: PodDisruptionBudget, spec: {minAvailable: 1,
		selector: {matchLabels: {app: extreme}}}}`,
	`{apiVersion: policy/v1, kind: PodDisruptionBudget, spec: {maxUnavailable: 1,
		selector: {matchLabels: {app: extreme}}}}`,
	`{apiVersion: v1, kind: Service, spec: {type: NodePort, sessionAffinity: ClientIP,
		sessionAffinityConfig: {clientIP: {timeoutSeconds: 1}}, ports: [{port: 1}],
		selector: {app: extreme}}}`,
	`{apiVersion: resource.k8s.io/v1, kind: ResourceClaim, spec: {devices: {requests: [{name: a,
		exactly: {deviceClassName: a, allocationMode: ExactCount, count: 1}}]}}}`,
	`{apiVersion: coordination.k8s.io/v1, kind: Lease, spec: {leaseDurationSeconds: 1}}`,
}

// extremesScaled is the target of the autoscalers.
const extremesScaled = `{apiVersion: apps/v1, kind: Deployment, metadata: {name: scaled}, spec: {
	selector: {matchLabels: {app: extreme}}, template: TEMPLATE}}`

func extremesParse(t *testing.T, text string) *unstructured.Unstructured {
	t.Helper()
	job := strings.Replace(extremesTemplate, "spec: {", "spec: {restartPolicy: Never, ", 1)
	text = strings.NewReplacer("TEMPLATE", extremesTemplate, "JOB", job, "\t", " ").Replace(text)
	u := &unstructured.Unstructured{}
	data := workloadtest.Must(yaml.YAMLToJSON([]byte(text)))(t)
	workloadtest.OK(t, u.UnmarshalJSON(data))
	return u
}

// extremesNumbers calls visit with the path of each number that value has or, directly in one of
// its objects, may have by its type. Lists have one element.
func extremesNumbers(
	t reflect.Type, value any, path []string, visit func(path []string, extremes []any),
) {
	if t.Kind() == reflect.Pointer {
		t = t.Elem()
	}
	switch {
	case t == reflect.TypeFor[intstr.IntOrString]():
		visit(path, []any{int64(0), int64(math.MaxInt32), "0%", "100%", "2147483647%"})
	case t == reflect.TypeFor[resource.Quantity]():
		visit(path, []any{"0", "1n", "9223372036854775807", "9999999999E"})
	case t.Kind() == reflect.Int32:
		visit(path, []any{int64(0), int64(math.MaxInt32)})
	case t.Kind() == reflect.Int64:
		visit(path, []any{int64(0), int64(math.MaxInt32), int64(math.MaxInt64)})
	case t.Kind() == reflect.Slice:
		if list, ok := value.([]any); ok && len(list) == 1 {
			extremesNumbers(t.Elem(), list[0], path, visit)
		}
	case t.Kind() == reflect.Struct:
		object, ok := value.(map[string]any)
		if !ok {
			return
		}
		for field := range t.Fields() {
			name, _, _ := strings.Cut(field.Tag.Get("json"), ",")
			if name == "" {
				extremesNumbers(field.Type, value, path, visit)
				continue
			}
			extremesNumbers(field.Type, object[name], append(path[:len(path):len(path)], name), visit)
		}
	}
}

// extremesSet returns value with another number at a path.
func extremesSet(value any, path []string, number any) any {
	if list, ok := value.([]any); ok {
		list[0] = extremesSet(list[0], path, number)
		return list
	}
	if len(path) == 0 {
		return number
	}
	object := value.(map[string]any)
	object[path[0]] = extremesSet(object[path[0]], path[1:], number)
	return object
}

// extremesCreate creates an object for each extreme number that its kind admits. It returns how
// many those are.
func extremesCreate(
	t *testing.T, client dynamic.Interface, mapper meta.RESTMapper, namespace string, nth int,
	base *unstructured.Unstructured,
) (created int) {
	t.Helper()
	gvk := base.GroupVersionKind()
	mapping := workloadtest.Must(mapper.RESTMapping(gvk.GroupKind(), gvk.Version))(t)
	typed := workloadtest.Must(scheme.Scheme.New(gvk))(t)
	spec, _ := reflect.TypeOf(typed).Elem().FieldByName("Spec")
	var tried int
	extremesNumbers(spec.Type, base.Object["spec"], []string{"spec"},
		func(path []string, extremes []any) {
			if len(path) > 2 && path[1] == "template" || path[1] == "jobTemplate" && len(path) > 3 {
				return // pods and Jobs have objects of their own
			}
			for _, number := range extremes {
				u := base.DeepCopy()
				tried++
				u.SetName(strings.ToLower(fmt.Sprintf("e%d-%d-%s", nth, tried, path[len(path)-1])))
				extremesSet(u.Object, path, number)
				_, err := client.Resource(mapping.Resource).Namespace(namespace).Create(t.Context(), u,
					metav1.CreateOptions{})
				switch {
				case err == nil:
					created++
				case !apierrors.IsInvalid(err) && !apierrors.IsBadRequest(err) &&
					!apierrors.IsForbidden(err):
					t.Errorf("create a %s with %s: %v: %v", gvk.Kind, strings.Join(path, "."), number, err)
				}
			}
		})
	return created
}

func extremesMapper(t *testing.T, s *server.Server) meta.RESTMapper {
	t.Helper()
	groups := workloadtest.Must(restmapper.GetAPIGroupResources(
		workloadtest.Client(t, s).Discovery()))(t)
	return restmapper.NewDiscoveryRESTMapper(groups)
}

// extremesRollout rolls out a Deployment of another user, on a node of that user's own.
func extremesRollout(t *testing.T, s *server.Server, name string) {
	t.Helper()
	client := workloadtest.Client(t, s)
	labels := map[string]string{"app": name}
	template := workloadtest.Template(labels)
	template.Spec.NodeName, template.Spec.NodeSelector = "", map[string]string{
		corev1.LabelHostname: "simulated-1",
	}
	template.Spec.Tolerations = []corev1.Toleration{{Key: "others", Operator: corev1.TolerationOpExists}}
	start := time.Now()
	workloadtest.Must(client.AppsV1().Deployments("others").Create(t.Context(), &appsv1.Deployment{
		ObjectMeta: metav1.ObjectMeta{Name: name},
		Spec: appsv1.DeploymentSpec{
			Replicas: new(int32(2)), Selector: &metav1.LabelSelector{MatchLabels: labels},
			Template: template,
		},
	}, metav1.CreateOptions{}))(t)
	var last *appsv1.Deployment
	err := wait.PollUntilContextTimeout(t.Context(), 20*time.Millisecond, extremesPatience, true,
		func(ctx context.Context) (bool, error) {
			d, err := client.AppsV1().Deployments("others").Get(ctx, name, metav1.GetOptions{})
			if err == nil {
				last = d
			}
			return err == nil && d.Status.AvailableReplicas == 2, err
		})
	if err != nil {
		pods, _ := client.CoreV1().Pods("others").List(t.Context(),
			metav1.ListOptions{LabelSelector: "app=" + name})
		t.Fatalf("the rollout of %s: %v: %+v, with the pods %+v", name, err, last, pods)
	}
	t.Logf("the rollout of %s took %s", name, time.Since(start).Round(time.Millisecond))
}

// extremesWatchMemory ends the process if its memory grows too much, until the test ends.
func extremesWatchMemory(t *testing.T) {
	t.Helper()
	samples := []metrics.Sample{{Name: "/memory/classes/heap/objects:bytes"}}
	used := func() uint64 {
		metrics.Read(samples)
		return samples[0].Value.Uint64()
	}
	before, most := used(), uint64(0)
	ended, done := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(done)
		for {
			most = max(most, used())
			if most > before+extremesMemory {
				panic("an object with extreme numbers lets the memory grow without bound")
			}
			select {
			case <-ended:
				return
			case <-time.After(10 * time.Millisecond):
			}
		}
	}()
	t.Cleanup(func() {
		close(ended)
		<-done
		t.Logf("the objects in memory took %d MiB at first and %d MiB at most", before>>20, most>>20)
	})
}

// TestExtremes has objects of a user with the most extreme numbers that the API admits, one in each
// object. Meanwhile, and after a restart, the Deployments of another user are rolled out.
func TestExtremes(t *testing.T) {
	t.Parallel()
	extremesWatchMemory(t)
	dir := t.TempDir()
	start := func() *server.Server {
		return servertest.Run(t, func(o *server.Options) {
			servertest.Workloads(o)
			o.SimulatedNodes, o.DataDir = 2, dir
		})
	}
	s := start()
	client := workloadtest.Client(t, s)
	for _, name := range []string{"extremes", "others"} {
		workloadtest.Must(client.CoreV1().Namespaces().Create(t.Context(), &corev1.Namespace{
			ObjectMeta: metav1.ObjectMeta{Name: name},
		}, metav1.CreateOptions{}))(t)
		workloadtest.Await(t, "the service account", func(ctx context.Context) (bool, error) {
			_, err := client.CoreV1().ServiceAccounts(name).Get(ctx, "default", metav1.GetOptions{})
			return err == nil, nil
		}, func(ok bool) bool { return ok })
	}
	workloadtest.Await(t, "the node", func(ctx context.Context) (bool, error) {
		_, err := client.CoreV1().Nodes().Patch(ctx, "simulated-1", types.StrategicMergePatchType,
			[]byte(`{"spec":{"taints":[{"key":"others","effect":"NoSchedule"}]}}`), metav1.PatchOptions{})
		return err == nil, nil
	}, func(ok bool) bool { return ok })
	extremesRollout(t, s, "before")

	objects := workloadtest.Must(dynamic.NewForConfig(s.RESTConfig()))(t)
	mapper := extremesMapper(t, s)
	scaled := extremesParse(t, extremesScaled)
	workloadtest.Must(objects.Resource(appsv1.SchemeGroupVersion.WithResource("deployments")).
		Namespace("extremes").Create(t.Context(), scaled, metav1.CreateOptions{}))(t)
	for i, text := range extremesObjects {
		base := extremesParse(t, text)
		if created := extremesCreate(t, objects, mapper, "extremes", i, base); created == 0 {
			t.Errorf("no extreme number of a %s is valid", base.GetKind())
		}
	}
	extremesRollout(t, s, "meanwhile")
	workloadtest.OK(t, s.Stop(t.Context()))
	s = start()
	extremesRollout(t, s, "after")
	workloadtest.OK(t, s.Stop(t.Context()))
}
