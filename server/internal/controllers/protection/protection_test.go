package protection_test

import (
	"context"
	"slices"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/kubernetes"

	"github.com/kinproc/kinproc/server/servertest"
)

// patience is far longer than anything here takes.
const patience = 30 * time.Second

func connect(t *testing.T) kubernetes.Interface {
	t.Helper()
	client, err := kubernetes.NewForConfig(servertest.Run(t).RESTConfig())
	if err != nil {
		t.Fatal(err)
	}
	return client
}

func must[T any](obj T, err error) func(*testing.T) T {
	return func(t *testing.T) T {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
		return obj
	}
}

func claim(class *string) *corev1.PersistentVolumeClaim {
	return &corev1.PersistentVolumeClaim{
		ObjectMeta: metav1.ObjectMeta{GenerateName: "claim-"},
		Spec: corev1.PersistentVolumeClaimSpec{
			AccessModes: []corev1.PersistentVolumeAccessMode{corev1.ReadWriteOnce},
			Resources: corev1.VolumeResourceRequirements{
				Requests: corev1.ResourceList{corev1.ResourceStorage: resource.MustParse("1Gi")},
			},
			VolumeAttributesClassName: class,
		},
	}
}

// deleted deletes objects of a resource and reads them afterwards.
type deleted struct {
	delete func(context.Context, string, metav1.DeleteOptions) error
	get    func(context.Context, string) (metav1.Object, error)
}

func (d deleted) gone(t *testing.T, name string) {
	t.Helper()
	var last metav1.Object
	err := wait.PollUntilContextTimeout(t.Context(), 5*time.Millisecond, patience, true,
		func(ctx context.Context) (bool, error) {
			var err error
			if last, err = d.get(ctx, name); apierrors.IsNotFound(err) {
				return true, nil
			}
			return false, err
		})
	if err != nil {
		t.Fatalf("%s still exists: %v; %+v", name, err, last)
	}
}

// heldBy deletes an object in use and another one. Once the other one is gone, the controller must
// have seen the first, too.
func (d deleted) heldBy(t *testing.T, finalizer, used, other string) {
	t.Helper()
	for _, name := range []string{used, other} {
		if err := d.delete(t.Context(), name, metav1.DeleteOptions{}); err != nil {
			t.Fatal(err)
		}
	}
	d.gone(t, other)
	if obj := must(d.get(t.Context(), used))(t); !slices.Contains(obj.GetFinalizers(), finalizer) {
		t.Fatalf("%s is in use, but has the finalizers %v", used, obj.GetFinalizers())
	}
}

func TestClaims(t *testing.T) {
	t.Parallel()
	client, ctx := connect(t), t.Context()
	claims, pods := client.CoreV1().PersistentVolumeClaims("default"), client.CoreV1().Pods("default")
	pod := func(name, node, claim string) {
		t.Helper()
		must(pods.Create(ctx, &corev1.Pod{
			ObjectMeta: metav1.ObjectMeta{Name: name},
			Spec: corev1.PodSpec{
				NodeName:   node,
				Containers: []corev1.Container{{Name: "c", Image: "i"}},
				Volumes: []corev1.Volume{{Name: "v", VolumeSource: corev1.VolumeSource{
					PersistentVolumeClaim: &corev1.PersistentVolumeClaimVolumeSource{ClaimName: claim},
				}}},
			},
		}, metav1.CreateOptions{}))(t)
	}
	used, other := must(claims.Create(ctx, claim(nil), metav1.CreateOptions{}))(t).Name,
		must(claims.Create(ctx, claim(nil), metav1.CreateOptions{}))(t).Name
	pod("bound", "somewhere", used)
	pod("unbound", "", other)
	d := deleted{claims.Delete, func(ctx context.Context, name string) (metav1.Object, error) {
		return claims.Get(ctx, name, metav1.GetOptions{})
	}}
	d.heldBy(t, "kubernetes.io/pvc-protection", used, other)
	if err := pods.Delete(ctx, "bound", metav1.DeleteOptions{
		GracePeriodSeconds: new(int64(0)),
	}); err != nil {
		t.Fatal(err)
	}
	d.gone(t, used)
}

func TestVolumes(t *testing.T) {
	t.Parallel()
	client, ctx := connect(t), t.Context()
	volumes := client.CoreV1().PersistentVolumes()
	for _, name := range []string{"bound", "free"} {
		must(volumes.Create(ctx, &corev1.PersistentVolume{
			ObjectMeta: metav1.ObjectMeta{Name: name},
			Spec: corev1.PersistentVolumeSpec{
				Capacity:    corev1.ResourceList{corev1.ResourceStorage: resource.MustParse("1Gi")},
				AccessModes: []corev1.PersistentVolumeAccessMode{corev1.ReadWriteOnce},
				PersistentVolumeSource: corev1.PersistentVolumeSource{
					HostPath: &corev1.HostPathVolumeSource{Path: "/data"},
				},
			},
		}, metav1.CreateOptions{}))(t)
	}
	phase := func(phase string) {
		t.Helper()
		must(volumes.Patch(ctx, "bound", types.MergePatchType, []byte(`{"status":{"phase":"`+phase+`"}}`),
			metav1.PatchOptions{}, "status"))(t)
	}
	phase("Bound")
	d := deleted{volumes.Delete, func(ctx context.Context, name string) (metav1.Object, error) {
		return volumes.Get(ctx, name, metav1.GetOptions{})
	}}
	d.heldBy(t, "kubernetes.io/pv-protection", "bound", "free")
	phase("Released")
	d.gone(t, "bound")
}

func TestClasses(t *testing.T) {
	t.Parallel()
	client, ctx := connect(t), t.Context()
	classes := client.StorageV1().VolumeAttributesClasses()
	for _, name := range []string{"used", "other"} {
		must(classes.Create(ctx, &storagev1.VolumeAttributesClass{
			ObjectMeta: metav1.ObjectMeta{Name: name},
			DriverName: "example.com",
			Parameters: map[string]string{"a": "b"},
		}, metav1.CreateOptions{}))(t)
	}
	claims := client.CoreV1().PersistentVolumeClaims("default")
	user := must(claims.Create(ctx, claim(new("used")), metav1.CreateOptions{}))(t).Name
	d := deleted{classes.Delete, func(ctx context.Context, name string) (metav1.Object, error) {
		return classes.Get(ctx, name, metav1.GetOptions{})
	}}
	d.heldBy(t, "kubernetes.io/vac-protection", "used", "other")
	if err := claims.Delete(ctx, user, metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	d.gone(t, "used")
}
