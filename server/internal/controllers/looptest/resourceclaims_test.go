package looptest

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	resourcev1 "k8s.io/api/resource/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/util/retry"

	"github.com/kinproc/kinproc/server"
	"github.com/kinproc/kinproc/server/internal/controllers/volumes/resourceclaims"
	"github.com/kinproc/kinproc/server/internal/controllers/workloadtest"
	"github.com/kinproc/kinproc/server/servertest"
)

// resourceClaimsCluster is a control plane, in a namespace of which a test has its objects.
type resourceClaimsCluster struct {
	*testing.T
	client    kubernetes.Interface
	namespace string
}

func resourceClaimsShared(t *testing.T) resourceClaimsCluster {
	t.Helper()
	client, namespace := shared(t)
	return resourceClaimsCluster{t, client, namespace}
}

var resourceClaimSpec = resourcev1.ResourceClaimSpec{Devices: resourcev1.DeviceClaim{
	Requests: []resourcev1.DeviceRequest{{
		Name: "gpu", Exactly: &resourcev1.ExactDeviceRequest{DeviceClassName: "gpus"},
	}},
}}

func (c resourceClaimsCluster) template(name string) {
	c.Helper()
	workloadtest.Must(c.client.ResourceV1().ResourceClaimTemplates(c.namespace).
		Create(c.Context(), &resourcev1.ResourceClaimTemplate{
			ObjectMeta: metav1.ObjectMeta{Name: name},
			Spec: resourcev1.ResourceClaimTemplateSpec{
				ObjectMeta: metav1.ObjectMeta{
					Labels:      map[string]string{"app": "training"},
					Annotations: map[string]string{"example.com/team": "a"},
				},
				Spec: resourceClaimSpec,
			},
		}, metav1.CreateOptions{}))(c)
}

func (c resourceClaimsCluster) claim(name string) {
	c.Helper()
	workloadtest.Must(c.client.ResourceV1().ResourceClaims(c.namespace).
		Create(c.Context(), &resourcev1.ResourceClaim{
			ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: resourceClaimSpec,
		}, metav1.CreateOptions{}))(c)
}

// pod creates a pod that asks for a claim.
func (c resourceClaimsCluster) pod(name string, claim corev1.PodResourceClaim) *corev1.Pod {
	c.Helper()
	pod := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Name: name},
		Spec: corev1.PodSpec{
			ResourceClaims: []corev1.PodResourceClaim{claim},
			Containers:     []corev1.Container{{Name: "c", Image: "i"}},
		},
	}
	var made *corev1.Pod
	workloadtest.Until(c, func(ctx context.Context) string { // the service account exists
		var err error
		made, err = c.client.CoreV1().Pods(c.namespace).Create(ctx, pod, metav1.CreateOptions{})
		if err != nil {
			return err.Error()
		}
		return ""
	})
	return made
}

func (c resourceClaimsCluster) delete(pod string) {
	c.Helper()
	if err := c.client.CoreV1().Pods(c.namespace).Delete(c.Context(), pod,
		metav1.DeleteOptions{GracePeriodSeconds: new(int64(0))}); err != nil {
		c.Fatal(err)
	}
}

func (c resourceClaimsCluster) finish(pod string) {
	c.Helper()
	workloadtest.Must(c.client.CoreV1().Pods(c.namespace).Patch(c.Context(), pod,
		"application/merge-patch+json", []byte(`{"status":{"phase":"Succeeded"}}`),
		metav1.PatchOptions{}, "status"))(c)
}

// bind binds a pod to a node, as somebody who is not the scheduler may do.
func (c resourceClaimsCluster) bind(pod string) {
	c.Helper()
	if err := c.client.CoreV1().Pods(c.namespace).Bind(c.Context(), &corev1.Binding{
		ObjectMeta: metav1.ObjectMeta{Name: pod},
		Target:     corev1.ObjectReference{Kind: "Node", Name: "a"},
	}, metav1.CreateOptions{}); err != nil {
		c.Fatal(err)
	}
}

// allocate gives a claim a device, as the scheduler does.
func (c resourceClaimsCluster) allocate(name string) {
	c.Helper()
	claims := c.client.ResourceV1().ResourceClaims(c.namespace)
	workloadtest.Must(claims.Patch(c.Context(), name, "application/merge-patch+json",
		[]byte(`{"metadata":{"finalizers":["`+resourcev1.Finalizer+`"]}}`), metav1.PatchOptions{}))(c)
	workloadtest.Must(claims.Patch(c.Context(), name, "application/merge-patch+json",
		[]byte(`{"status":{"allocation":{"devices":{"results":[
			{"request":"gpu","driver":"gpus.example.com","pool":"a","device":"0"}]}}}}`),
		metav1.PatchOptions{}, "status"))(c)
}

func (c resourceClaimsCluster) awaitClaim(
	name, what string, wanted func(*resourcev1.ResourceClaim) bool,
) *resourcev1.ResourceClaim {
	c.Helper()
	return workloadtest.Await(c, what, func(ctx context.Context) (*resourcev1.ResourceClaim, error) {
		return c.client.ResourceV1().ResourceClaims(c.namespace).Get(ctx, name,
			metav1.GetOptions{})
	}, wanted)
}

func (c resourceClaimsCluster) awaitGone(name string) {
	c.Helper()
	workloadtest.Await(c, "the claim is deleted", func(ctx context.Context) (bool, error) {
		_, err := c.client.ResourceV1().ResourceClaims(c.namespace).Get(ctx, name,
			metav1.GetOptions{})
		if apierrors.IsNotFound(err) {
			return true, nil
		}
		return false, err
	}, func(gone bool) bool { return gone })
}

// awaitName returns the name of the claim that a pod's status says was made for the pod.
func (c resourceClaimsCluster) awaitName(pod string) string {
	c.Helper()
	p := workloadtest.Await(c, "the claim's name is in the pod's status",
		func(ctx context.Context) (*corev1.Pod, error) {
			return c.client.CoreV1().Pods(c.namespace).Get(ctx, pod, metav1.GetOptions{})
		}, func(p *corev1.Pod) bool {
			return len(p.Status.ResourceClaimStatuses) == 1 &&
				p.Status.ResourceClaimStatuses[0].ResourceClaimName != nil
		})
	return *p.Status.ResourceClaimStatuses[0].ResourceClaimName
}

func (c resourceClaimsCluster) claims() []resourcev1.ResourceClaim {
	c.Helper()
	return workloadtest.Must(c.client.ResourceV1().ResourceClaims(c.namespace).
		List(c.Context(), metav1.ListOptions{}))(c).Items
}

func resourceClaimFromTemplate(template string) corev1.PodResourceClaim {
	return corev1.PodResourceClaim{Name: "device", ResourceClaimTemplateName: &template}
}

func resourceClaimOf(claim string) corev1.PodResourceClaim {
	return corev1.PodResourceClaim{Name: "device", ResourceClaimName: &claim}
}

func resourceClaimReservedFor(pods ...*corev1.Pod) func(*resourcev1.ResourceClaim) bool {
	return func(claim *resourcev1.ResourceClaim) bool {
		if len(claim.Status.ReservedFor) != len(pods) {
			return false
		}
		for i, pod := range pods {
			if r := claim.Status.ReservedFor[i]; r.UID != pod.UID || r.Resource != "pods" {
				return false
			}
		}
		return true
	}
}

// TestResourceClaimFromTemplate follows the claim of one pod from its template to its end.
func TestResourceClaimFromTemplate(t *testing.T) {
	t.Parallel()
	c := resourceClaimsShared(t)
	pod := c.pod("a", resourceClaimFromTemplate("gpus")) // before its template
	c.template("gpus")
	name := c.awaitName("a")
	claim := c.awaitClaim(name, "made", func(*resourcev1.ResourceClaim) bool { return true })
	if !strings.HasPrefix(name, "a-device-") || !metav1.IsControlledBy(claim, pod) ||
		claim.Labels["app"] != "training" || claim.Annotations["example.com/team"] != "a" ||
		claim.Annotations[resourcev1.PodResourceClaimAnnotation] != "device" ||
		len(claim.Spec.Devices.Requests) != 1 {
		t.Errorf("unexpected claim: %+v", claim)
	}
	if n := len(c.claims()); n != 1 {
		t.Errorf("%d claims were made for one pod", n)
	}

	c.allocate(name)
	c.bind("a")
	c.awaitClaim(name, "reserved for the pod", resourceClaimReservedFor(pod))
	c.finish("a")
	c.awaitGone(name)
}

// TestResourceClaimOfTwoPods has two pods use one claim that is nobody's own.
func TestResourceClaimOfTwoPods(t *testing.T) {
	t.Parallel()
	c := resourceClaimsShared(t)
	c.claim("shared")
	c.allocate("shared")
	a, b := c.pod("a", resourceClaimOf("shared")), c.pod("b", resourceClaimOf("shared"))
	c.bind("a")
	c.awaitClaim("shared", "reserved for the first", resourceClaimReservedFor(a))
	c.bind("b")
	c.awaitClaim("shared", "reserved for both", resourceClaimReservedFor(a, b))
	c.delete("a")
	claim := c.awaitClaim("shared", "reserved for the second", resourceClaimReservedFor(b))
	if claim.Status.Allocation == nil {
		t.Error("a claim in use has lost its allocation")
	}
	c.delete("b")
	c.awaitClaim("shared", "free", func(claim *resourcev1.ResourceClaim) bool {
		return claim.Status.Allocation == nil && len(claim.Finalizers) == 0
	})
}

// TestResourceClaimDeleted deletes an allocated claim that no pod uses.
func TestResourceClaimDeleted(t *testing.T) {
	t.Parallel()
	c := resourceClaimsShared(t)
	c.claim("unused")
	c.allocate("unused")
	if err := c.client.ResourceV1().ResourceClaims(c.namespace).Delete(t.Context(),
		"unused", metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	c.awaitGone("unused")
}

// reserve reserves a claim for one more pod, as the scheduler does.
func (c resourceClaimsCluster) reserve(name string, pod *corev1.Pod) {
	c.Helper()
	claims := c.client.ResourceV1().ResourceClaims(c.namespace)
	workloadtest.OK(c, retry.RetryOnConflict(wait.Backoff{Steps: 100, Duration: time.Millisecond},
		func() error {
			claim, err := claims.Get(c.Context(), name, metav1.GetOptions{})
			if err != nil {
				return err
			}
			claim.Status.ReservedFor = append(claim.Status.ReservedFor,
				resourcev1.ResourceClaimConsumerReference{
					Resource: "pods", Name: pod.Name, UID: pod.UID,
				})
			_, err = claims.UpdateStatus(c.Context(), claim, metav1.UpdateOptions{})
			return err
		}))
}

// TestResourceClaimTwoWriters reserves a claim for new pods while the pods before them go. Each new
// pod has the name of the one that goes.
func TestResourceClaimTwoWriters(t *testing.T) {
	t.Parallel()
	c := resourceClaimsShared(t)
	c.claim("shared")
	c.allocate("shared")
	holder, pod := c.pod("holder", resourceClaimOf("shared")), c.pod("a", resourceClaimOf("shared"))
	c.reserve("shared", holder)
	for range 20 {
		c.reserve("shared", pod)
		c.delete("a")
		pod = c.pod("a", resourceClaimOf("shared"))
	}
	c.reserve("shared", pod)
	c.awaitClaim("shared", "reserved for two pods", resourceClaimReservedFor(holder, pod))
	c.delete("holder")
	claim := c.awaitClaim("shared", "reserved for the last pod", resourceClaimReservedFor(pod))
	if claim.Status.Allocation == nil {
		t.Error("a claim in use has lost its allocation")
	}
}

// TestResourceClaimsOfDyingNamespace deletes a namespace in which a pod has a claim, and another
// one still needs one.
func TestResourceClaimsOfDyingNamespace(t *testing.T) {
	t.Parallel()
	c := resourceClaimsShared(t)
	c.claim("shared")
	c.allocate("shared")
	c.reserve("shared", c.pod("a", resourceClaimOf("shared")))
	c.bind("a")
	c.pod("b", resourceClaimFromTemplate("gpus")) // which comes too late
	workloadtest.OK(t, c.client.CoreV1().Namespaces().Delete(t.Context(), c.namespace,
		metav1.DeleteOptions{}))
	workloadtest.Until(t, func(ctx context.Context) string {
		pod, err := c.client.CoreV1().Pods(c.namespace).Get(ctx, "a", metav1.GetOptions{})
		if err != nil || pod.DeletionTimestamp == nil {
			return fmt.Sprintf("%v; %+v", err, pod)
		}
		return ""
	})
	c.delete("a") // as its kubelet does
	workloadtest.Until(t, func(ctx context.Context) string {
		ns, err := c.client.CoreV1().Namespaces().Get(ctx, c.namespace, metav1.GetOptions{})
		if apierrors.IsNotFound(err) {
			return ""
		}
		return fmt.Sprintf("%v; %+v", err, ns)
	})
}

// TestResourceClaimsRestart changes pods and claims while the controller does not run.
func TestResourceClaimsRestart(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	run := func(configure ...func(*server.Options)) (*server.Server, resourceClaimsCluster) {
		t.Helper()
		s, client := workloadtest.Run(t, []string{resourceclaims.Name}, append(configure,
			func(o *server.Options) { o.DataDir = dir })...)
		return s, resourceClaimsCluster{t, client, workloadtest.Namespace}
	}
	s, c := run()
	c.template("gpus")
	c.claim("shared")
	c.allocate("shared")
	stays, goes := c.pod("stays", resourceClaimOf("shared")), c.pod("goes", resourceClaimOf("shared"))
	c.reserve("shared", stays)
	c.reserve("shared", goes)
	first := map[string]string{}
	for _, name := range []string{"recreated", "finished", "lost"} {
		c.pod(name, resourceClaimFromTemplate("gpus"))
		first[name] = c.awaitName(name)
	}
	for _, name := range []string{"recreated", "finished"} {
		c.allocate(first[name])
		c.bind(name)
		c.awaitClaim(first[name], "reserved", func(claim *resourcev1.ResourceClaim) bool {
			return len(claim.Status.ReservedFor) == 1
		})
	}
	workloadtest.OK(t, s.Stop(context.WithoutCancel(t.Context())))

	s, c = run(servertest.WithoutControllers)
	c.delete("goes")
	c.pod("goes", resourceClaimOf("shared"))
	c.delete("recreated")
	again := c.pod("recreated", resourceClaimFromTemplate("gpus"))
	c.finish("finished")
	lost := c.client.ResourceV1().ResourceClaims(c.namespace)
	workloadtest.OK(t, lost.Delete(t.Context(), first["lost"], metav1.DeleteOptions{}))
	// The controller was stopped after it had made a claim, and before it wrote the name.
	half := c.pod("half", resourceClaimFromTemplate("gpus"))
	workloadtest.Must(lost.Create(t.Context(), &resourcev1.ResourceClaim{
		ObjectMeta: metav1.ObjectMeta{
			Name:        "half-device-1",
			Annotations: map[string]string{resourcev1.PodResourceClaimAnnotation: "device"},
			OwnerReferences: []metav1.OwnerReference{
				*metav1.NewControllerRef(half, corev1.SchemeGroupVersion.WithKind("Pod")),
			},
		},
		Spec: resourceClaimSpec,
	}, metav1.CreateOptions{}))(t)
	workloadtest.OK(t, s.Stop(context.WithoutCancel(t.Context())))

	_, c = run()
	c.awaitClaim("shared", "reserved for one pod", resourceClaimReservedFor(stays))
	c.awaitGone(first["recreated"])
	c.awaitGone(first["finished"])
	name := c.awaitName("recreated")
	claim := c.awaitClaim(name, "made", func(*resourcev1.ResourceClaim) bool { return true })
	if name == first["recreated"] || !metav1.IsControlledBy(claim, again) {
		t.Errorf("the recreated pod has the claim %s of %v", name, claim.OwnerReferences)
	}
	if name := c.awaitName("half"); name != "half-device-1" {
		t.Errorf("another claim was made: %s", name)
	}
	workloadtest.Until(t, func(context.Context) string {
		var of []string
		for _, claim := range c.claims() {
			for _, owner := range claim.OwnerReferences {
				of = append(of, owner.Name)
			}
		}
		slices.Sort(of)
		if !slices.Equal(of, []string{"half", "lost", "recreated"}) {
			return fmt.Sprintf("there are claims of %v", of)
		}
		return ""
	})
}

// TestResourceClaimOfReplacedPod replaces a pod by another one of the same name at once.
func TestResourceClaimOfReplacedPod(t *testing.T) {
	t.Parallel()
	c := resourceClaimsShared(t)
	c.template("gpus")
	c.pod("a", resourceClaimFromTemplate("gpus"))
	first := c.awaitName("a")
	c.allocate(first)
	c.bind("a")
	c.delete("a")
	pod := c.pod("a", resourceClaimFromTemplate("gpus"))
	second := c.awaitName("a")
	if second == first {
		t.Error("a pod has the claim of the pod before it")
	}
	c.awaitGone(first)
	claim := c.awaitClaim(second, "made", func(*resourcev1.ResourceClaim) bool { return true })
	if !metav1.IsControlledBy(claim, pod) {
		t.Errorf("unexpected owners: %v", claim.OwnerReferences)
	}
}
