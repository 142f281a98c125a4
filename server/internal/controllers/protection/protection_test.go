package protection_test

import (
	"context"
	"errors"
	"fmt"
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

	"github.com/kinproc/kinproc/server"
	"github.com/kinproc/kinproc/server/internal/controllers/workloadtest"
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

// TestRestart deletes claims, volumes and classes while the controllers do not run, and changes who
// uses them.
func TestRestart(t *testing.T) {
	t.Parallel()
	dir, ctx := t.TempDir(), t.Context()
	run := func(controllers ...string) (*server.Server, kubernetes.Interface) {
		t.Helper()
		s := servertest.Run(t, func(o *server.Options) { o.DataDir, o.Controllers = dir, controllers })
		return s, kubernetes.NewForConfigOrDie(s.RESTConfig())
	}
	ok := func(errs ...error) {
		t.Helper()
		if err := errors.Join(errs...); err != nil {
			t.Fatal(err)
		}
	}
	pod := func(client kubernetes.Interface, name, claim string) {
		t.Helper()
		must(client.CoreV1().Pods("default").Create(ctx, &corev1.Pod{
			ObjectMeta: metav1.ObjectMeta{Name: name},
			Spec: corev1.PodSpec{
				NodeName:                     "somewhere",
				AutomountServiceAccountToken: new(false),
				Containers:                   []corev1.Container{{Name: "c", Image: "i"}},
				Volumes: []corev1.Volume{{Name: "v", VolumeSource: corev1.VolumeSource{
					PersistentVolumeClaim: &corev1.PersistentVolumeClaimVolumeSource{ClaimName: claim},
				}}},
			},
		}, metav1.CreateOptions{}))(t)
	}
	const claimFinalizer = "kubernetes.io/pvc-protection"
	s, client := run()
	workloadtest.Until(t, func(ctx context.Context) string { // for the pods
		_, err := client.CoreV1().ServiceAccounts("default").Get(ctx, "default", metav1.GetOptions{})
		if err != nil {
			return err.Error()
		}
		return ""
	})
	for _, name := range []string{"used", "unused", "left", "taken"} {
		c := claim(nil)
		c.Name = name
		must(client.CoreV1().PersistentVolumeClaims("default").Create(ctx, c, metav1.CreateOptions{}))(t)
	}
	pod(client, "user", "used")
	pod(client, "leaves", "left")
	for _, name := range []string{"class", "kept"} {
		must(client.StorageV1().VolumeAttributesClasses().Create(ctx,
			&storagev1.VolumeAttributesClass{
				ObjectMeta: metav1.ObjectMeta{Name: name}, DriverName: "example.com",
				Parameters: map[string]string{"a": "b"},
			}, metav1.CreateOptions{}))(t)
	}
	holder := must(client.CoreV1().PersistentVolumeClaims("default").Create(ctx, claim(new("kept")),
		metav1.CreateOptions{}))(t).Name
	// The controller waits for the end of the pod when it stops.
	claims := func(client kubernetes.Interface) deleted {
		api := client.CoreV1().PersistentVolumeClaims("default")
		return deleted{api.Delete, func(ctx context.Context, name string) (metav1.Object, error) {
			return api.Get(ctx, name, metav1.GetOptions{})
		}}
	}
	claims(client).heldBy(t, claimFinalizer, "left", "unused")
	ok(s.Stop(ctx))

	s, client = run("-*")
	now := metav1.DeleteOptions{GracePeriodSeconds: new(int64(0))}
	pods, d := client.CoreV1().Pods("default"), claims(client)
	classes := client.StorageV1().VolumeAttributesClasses()
	ok(
		pods.Delete(ctx, "leaves", now),
		// Another pod of the same name uses another claim.
		pods.Delete(ctx, "user", now),
		d.delete(ctx, "used", metav1.DeleteOptions{}),
		classes.Delete(ctx, "class", metav1.DeleteOptions{}),
		classes.Delete(ctx, "kept", metav1.DeleteOptions{}),
	)
	pod(client, "user", "taken")
	ok(d.delete(ctx, "taken", metav1.DeleteOptions{}))
	ok(s.Stop(ctx))

	_, client = run()
	d = claims(client)
	d.gone(t, "left")
	d.gone(t, "used")
	classes = client.StorageV1().VolumeAttributesClasses()
	c := deleted{classes.Delete, func(ctx context.Context, name string) (metav1.Object, error) {
		return classes.Get(ctx, name, metav1.GetOptions{})
	}}
	c.gone(t, "class")
	if obj := must(d.get(ctx, "taken"))(t); !slices.Contains(obj.GetFinalizers(), claimFinalizer) {
		t.Errorf("a claim in use has the finalizers %v", obj.GetFinalizers())
	}
	if obj := must(c.get(ctx, "kept"))(t); len(obj.GetFinalizers()) == 0 {
		t.Error("a class in use has no finalizer")
	}
	// The pod is replaced by one of the same name that does not use the claim.
	ok(client.CoreV1().Pods("default").Delete(ctx, "user", now))
	pod(client, "user", "other")
	d.gone(t, "taken")
	ok(d.delete(ctx, holder, metav1.DeleteOptions{}))
	c.gone(t, "kept")
}

// TestTwoWriters changes claims while the controller releases them, and creates others of the same
// name.
func TestTwoWriters(t *testing.T) {
	t.Parallel()
	client, ctx := connect(t), t.Context()
	claims := client.CoreV1().PersistentVolumeClaims("default")
	for range 10 {
		c := claim(nil)
		c.Name, c.Finalizers = "c", []string{"example.com/other"}
		c = must(claims.Create(ctx, c, metav1.CreateOptions{}))(t)
		if err := claims.Delete(ctx, "c", metav1.DeleteOptions{}); err != nil {
			t.Fatal(err)
		}
		for _, patch := range []string{
			`[{"op":"add","path":"/metadata/labels","value":{"a":"b"}}]`,
			`[{"op":"replace","path":"/metadata/labels/a","value":"c"}]`,
		} {
			must(claims.Patch(ctx, "c", types.JSONPatchType, []byte(patch), metav1.PatchOptions{}))(t)
		}
		// The controller removes its own finalizer only.
		workloadtest.Until(t, func(ctx context.Context) string {
			got, err := claims.Get(ctx, "c", metav1.GetOptions{})
			if err != nil || got.UID != c.UID || got.Labels["a"] != "c" ||
				!slices.Equal(got.Finalizers, []string{"example.com/other"}) {
				return fmt.Sprintf("%v; %+v", err, got)
			}
			return ""
		})
		must(claims.Patch(ctx, "c", types.MergePatchType, []byte(`{"metadata":{"finalizers":null}}`),
			metav1.PatchOptions{}))(t)
	}
}
