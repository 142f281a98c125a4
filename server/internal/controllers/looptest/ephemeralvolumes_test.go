package looptest

import (
	"context"
	"fmt"
	"testing"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"

	"github.com/kinproc/kinproc/server"
	"github.com/kinproc/kinproc/server/internal/controllers/volumes/ephemeralvolumes"
	"github.com/kinproc/kinproc/server/internal/controllers/workloadtest"
	"github.com/kinproc/kinproc/server/servertest"
)

// ephemeralVolumes is a namespace with pods and their claims.
type ephemeralVolumes struct {
	*testing.T
	client    kubernetes.Interface
	namespace string
}

func ephemeralVolumesShared(t *testing.T) ephemeralVolumes {
	t.Helper()
	client, namespace := shared(t)
	return ephemeralVolumes{t, client, namespace}
}

// startEphemeralVolumes starts a control plane with the controller.
func startEphemeralVolumes(
	t *testing.T, configure ...func(*server.Options),
) (c ephemeralVolumes, stop func()) {
	t.Helper()
	s, client := workloadtest.Run(t, []string{ephemeralvolumes.Name, "pvc-protection"}, configure...)
	return ephemeralVolumes{t, client, workloadtest.Namespace}, func() {
		t.Helper()
		workloadtest.OK(t, s.Stop(context.WithoutCancel(t.Context())))
	}
}

var ephemeralVolumesClaim = corev1.PersistentVolumeClaimSpec{
	AccessModes: []corev1.PersistentVolumeAccessMode{corev1.ReadWriteOnce},
	Resources: corev1.VolumeResourceRequirements{
		Requests: corev1.ResourceList{corev1.ResourceStorage: resource.MustParse("1Gi")},
	},
}

// pod creates a pod with ephemeral volumes.
func (c ephemeralVolumes) pod(name string, volumes ...string) *corev1.Pod {
	c.Helper()
	pod := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Name: name},
		Spec: corev1.PodSpec{
			AutomountServiceAccountToken: new(false),
			Containers:                   []corev1.Container{{Name: "c", Image: "i"}},
			Volumes:                      []corev1.Volume{{Name: "none"}},
		},
	}
	for _, volume := range volumes {
		pod.Spec.Volumes = append(pod.Spec.Volumes, corev1.Volume{
			Name: volume, VolumeSource: corev1.VolumeSource{Ephemeral: &corev1.EphemeralVolumeSource{
				VolumeClaimTemplate: &corev1.PersistentVolumeClaimTemplate{
					ObjectMeta: metav1.ObjectMeta{
						Labels: map[string]string{"a": "b"}, Annotations: map[string]string{"c": "d"},
					},
					Spec: ephemeralVolumesClaim,
				},
			}},
		})
	}
	var made *corev1.Pod
	workloadtest.Until(c, func(ctx context.Context) string { // the service account exists
		var err error
		made, err = c.client.CoreV1().Pods(c.namespace).Create(ctx, pod,
			metav1.CreateOptions{})
		if err != nil {
			return err.Error()
		}
		return ""
	})
	return made
}

func (c ephemeralVolumes) deletePod(name string) {
	c.Helper()
	workloadtest.OK(c, c.client.CoreV1().Pods(c.namespace).Delete(c.Context(), name,
		metav1.DeleteOptions{GracePeriodSeconds: new(int64(0))}))
}

func (c ephemeralVolumes) deleteClaim(name string) {
	c.Helper()
	workloadtest.OK(c, c.client.CoreV1().PersistentVolumeClaims(c.namespace).Delete(
		c.Context(), name, metav1.DeleteOptions{}))
}

// foreign makes a claim that is not for a pod.
func (c ephemeralVolumes) foreign(name string) *corev1.PersistentVolumeClaim {
	c.Helper()
	return workloadtest.Must(c.client.CoreV1().PersistentVolumeClaims(c.namespace).Create(
		c.Context(), &corev1.PersistentVolumeClaim{
			ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: ephemeralVolumesClaim,
		}, metav1.CreateOptions{}))(c)
}

// awaitClaim waits until there is a claim that is for a pod, and not the one before.
func (c ephemeralVolumes) awaitClaim(
	name string, pod *corev1.Pod, before ...*corev1.PersistentVolumeClaim,
) *corev1.PersistentVolumeClaim {
	c.Helper()
	var claim *corev1.PersistentVolumeClaim
	workloadtest.Until(c, func(ctx context.Context) string {
		var err error
		claim, err = c.client.CoreV1().PersistentVolumeClaims(c.namespace).Get(ctx, name,
			metav1.GetOptions{})
		if err != nil || !metav1.IsControlledBy(claim, pod) || claim.DeletionTimestamp != nil ||
			len(before) > 0 && claim.UID == before[0].UID {
			return fmt.Sprintf("%s: %v; %+v", name, err, claim)
		}
		return ""
	})
	return claim
}

func (c ephemeralVolumes) awaitGone(name string) {
	c.Helper()
	workloadtest.Until(c, func(ctx context.Context) string {
		claim, err := c.client.CoreV1().PersistentVolumeClaims(c.namespace).Get(ctx, name,
			metav1.GetOptions{})
		if apierrors.IsNotFound(err) {
			return ""
		}
		return fmt.Sprintf("%s: %v; %+v", name, err, claim)
	})
}

// TestEphemeralVolumesClaims has a pod with two volumes. Their claims are made from the template,
// again while the pod needs them, and are gone with the pod.
func TestEphemeralVolumesClaims(t *testing.T) {
	t.Parallel()
	c := ephemeralVolumesShared(t)
	pod := c.pod("my-app", "data", "more-data")
	c.awaitClaim("my-app-data", pod)
	claim := c.awaitClaim("my-app-more-data", pod)
	if claim.Labels["a"] != "b" || claim.Annotations["c"] != "d" ||
		!claim.Spec.Resources.Requests.Storage().Equal(resource.MustParse("1Gi")) ||
		len(claim.OwnerReferences) != 1 || !*claim.OwnerReferences[0].BlockOwnerDeletion {
		t.Errorf("the claim is %+v", claim)
	}
	c.deleteClaim("my-app-more-data")
	c.awaitClaim("my-app-more-data", pod, claim)
	c.deletePod("my-app")
	c.awaitGone("my-app-data")
	c.awaitGone("my-app-more-data")
}

// TestEphemeralVolumesForeignClaim has a claim of somebody else in the place of a pod's. The pod
// gets its own when that one is gone.
func TestEphemeralVolumesForeignClaim(t *testing.T) {
	t.Parallel()
	c := ephemeralVolumesShared(t)
	foreign := c.foreign("app-data")
	pod := c.pod("app", "data", "other")
	workloadtest.AwaitEvent(t, c.client, c.namespace, "app", "FailedBinding")
	c.awaitClaim("app-other", pod) // despite the other volume
	claim := workloadtest.Must(c.client.CoreV1().PersistentVolumeClaims(c.namespace).Get(
		t.Context(), "app-data", metav1.GetOptions{}))(t)
	if claim.UID != foreign.UID || len(claim.OwnerReferences) > 0 {
		t.Errorf("the claim of somebody else is %+v", claim)
	}
	c.deleteClaim("app-data")
	c.awaitClaim("app-data", pod)
}

// TestEphemeralVolumesRecreated deletes a pod and creates another one with its name at once. It has
// its own claim.
func TestEphemeralVolumesRecreated(t *testing.T) {
	t.Parallel()
	c := ephemeralVolumesShared(t)
	before := c.awaitClaim("app-data", c.pod("app", "data"))
	for range 10 {
		c.deletePod("app")
		before = c.awaitClaim("app-data", c.pod("app", "data"), before)
	}
}

// TestEphemeralVolumesDyingNamespace has a pod in a namespace that is being deleted. Its claim
// cannot be made.
func TestEphemeralVolumesDyingNamespace(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	c, stop := startEphemeralVolumes(t, func(o *server.Options) {
		o.DataDir, o.Controllers = dir, []string{"-*", "serviceaccount-controller"}
	})
	ctx := t.Context()
	workloadtest.Must(c.client.CoreV1().Namespaces().Create(ctx, &corev1.Namespace{
		ObjectMeta: metav1.ObjectMeta{Name: "dying"},
	}, metav1.CreateOptions{}))(t)
	pod := c.pod("app", "data")
	pod = &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Name: "app", Finalizers: []string{"example.com/hold"}},
		Spec:       pod.Spec,
	}
	workloadtest.Until(t, func(ctx context.Context) string {
		_, err := c.client.CoreV1().Pods("dying").Create(ctx, pod, metav1.CreateOptions{})
		if err != nil {
			return err.Error()
		}
		return ""
	})
	workloadtest.OK(t, c.client.CoreV1().Namespaces().Delete(ctx, "dying", metav1.DeleteOptions{}))
	stop()

	// The controller sees the pod before the namespace controller deletes it, or after that.
	c, _ = startEphemeralVolumes(t, func(o *server.Options) { o.DataDir = dir })
	c.awaitClaim("app-data", workloadtest.Must(c.client.CoreV1().Pods(c.namespace).Get(
		ctx, "app", metav1.GetOptions{}))(t))
	workloadtest.Until(t, func(ctx context.Context) string {
		pod, err := c.client.CoreV1().Pods("dying").Get(ctx, "app", metav1.GetOptions{})
		if err != nil || pod.DeletionTimestamp == nil {
			return fmt.Sprintf("%v; %+v", err, pod)
		}
		return ""
	})
	workloadtest.Must(c.client.CoreV1().Pods("dying").Patch(ctx, "app",
		"application/merge-patch+json", []byte(`{"metadata":{"finalizers":null}}`),
		metav1.PatchOptions{}))(t)
	workloadtest.Until(t, func(ctx context.Context) string {
		_, err := c.client.CoreV1().Namespaces().Get(ctx, "dying", metav1.GetOptions{})
		if apierrors.IsNotFound(err) {
			return ""
		}
		return fmt.Sprintf("the namespace is there: %v", err)
	})
}

// TestEphemeralVolumesRestart changes pods and claims while the controller does not run.
func TestEphemeralVolumesRestart(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	c, stop := startEphemeralVolumes(t, func(o *server.Options) { o.DataDir = dir })
	recreated := c.awaitClaim("recreated-data", c.pod("recreated", "data"))
	kept := c.pod("kept", "data")
	lost := c.awaitClaim("kept-data", kept)
	c.awaitClaim("gone-data", c.pod("gone", "data"))
	c.foreign("blocked-data")
	blocked := c.pod("blocked", "data")
	workloadtest.AwaitEvent(t, c.client, c.namespace, "blocked", "FailedBinding")
	stop()

	off, stop := startEphemeralVolumes(t, func(o *server.Options) { o.DataDir = dir },
		servertest.WithoutControllers)
	off.deletePod("recreated")
	again := off.pod("recreated", "data")
	off.deletePod("gone")
	fresh := off.pod("new", "data")
	off.deleteClaim("kept-data") // the finalizer holds it
	off.deleteClaim("blocked-data")
	stop()

	c, _ = startEphemeralVolumes(t, func(o *server.Options) { o.DataDir = dir })
	c.awaitClaim("recreated-data", again, recreated)
	c.awaitClaim("new-data", fresh)
	c.awaitClaim("kept-data", kept, lost)
	c.awaitClaim("blocked-data", blocked)
	c.awaitGone("gone-data")
}
