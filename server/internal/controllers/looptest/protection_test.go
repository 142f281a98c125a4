package looptest

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"testing"

	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"

	"github.com/kinproc/kinproc/server"
	"github.com/kinproc/kinproc/server/internal/controllers/workloadtest"
	"github.com/kinproc/kinproc/server/servertest"
)

func protectionClaim(class *string) *corev1.PersistentVolumeClaim {
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

// protectionOf deletes objects of a kind and reads them afterwards.
type protectionOf struct {
	delete func(context.Context, string, metav1.DeleteOptions) error
	get    func(context.Context, string) (metav1.Object, error)
}

func (d protectionOf) gone(t *testing.T, name string) {
	t.Helper()
	workloadtest.Until(t, func(ctx context.Context) string {
		last, err := d.get(ctx, name)
		if apierrors.IsNotFound(err) {
			return ""
		}
		return fmt.Sprintf("%s still exists: %v; %+v", name, err, last)
	})
}

// heldBy deletes an object in use and another one. Once the other one is gone, the controller must
// have seen the first, too.
func (d protectionOf) heldBy(t *testing.T, finalizer, used, other string) {
	t.Helper()
	for _, name := range []string{used, other} {
		workloadtest.OK(t, d.delete(t.Context(), name, metav1.DeleteOptions{}))
	}
	d.gone(t, other)
	obj := workloadtest.Must(d.get(t.Context(), used))(t)
	if !slices.Contains(obj.GetFinalizers(), finalizer) {
		t.Fatalf("%s is in use, but has the finalizers %v", used, obj.GetFinalizers())
	}
}

func TestClaimProtection(t *testing.T) {
	t.Parallel()
	client, namespace := shared(t)
	ctx := t.Context()
	claims := client.CoreV1().PersistentVolumeClaims(namespace)
	pods := client.CoreV1().Pods(namespace)
	pod := func(name, node, claim string) {
		t.Helper()
		workloadtest.Must(pods.Create(ctx, &corev1.Pod{
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
	claim := func() string {
		t.Helper()
		return workloadtest.Must(claims.Create(ctx, protectionClaim(nil),
			metav1.CreateOptions{}))(t).Name
	}
	used, other := claim(), claim()
	pod("bound", "somewhere", used)
	pod("unbound", "", other)
	d := protectionOf{claims.Delete, func(ctx context.Context, name string) (metav1.Object, error) {
		return claims.Get(ctx, name, metav1.GetOptions{})
	}}
	d.heldBy(t, "kubernetes.io/pvc-protection", used, other)
	workloadtest.OK(t, pods.Delete(ctx, "bound", metav1.DeleteOptions{
		GracePeriodSeconds: new(int64(0)),
	}))
	d.gone(t, used)
}

func TestVolumeProtection(t *testing.T) {
	t.Parallel()
	client, ctx := workloadtest.Client(t, servertest.Run(t)), t.Context()
	volumes := client.CoreV1().PersistentVolumes()
	for _, name := range []string{"bound", "free"} {
		workloadtest.Must(volumes.Create(ctx, &corev1.PersistentVolume{
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
		workloadtest.Must(volumes.Patch(ctx, "bound", types.MergePatchType,
			[]byte(`{"status":{"phase":"`+phase+`"}}`), metav1.PatchOptions{}, "status"))(t)
	}
	phase("Bound")
	d := protectionOf{volumes.Delete, func(ctx context.Context, name string) (metav1.Object, error) {
		return volumes.Get(ctx, name, metav1.GetOptions{})
	}}
	d.heldBy(t, "kubernetes.io/pv-protection", "bound", "free")
	phase("Released")
	d.gone(t, "bound")
}

func TestVolumeAttributesClassProtection(t *testing.T) {
	t.Parallel()
	client, ctx := workloadtest.Client(t, servertest.Run(t)), t.Context()
	classes := client.StorageV1().VolumeAttributesClasses()
	for _, name := range []string{"used", "other"} {
		workloadtest.Must(classes.Create(ctx, &storagev1.VolumeAttributesClass{
			ObjectMeta: metav1.ObjectMeta{Name: name},
			DriverName: "example.com",
			Parameters: map[string]string{"a": "b"},
		}, metav1.CreateOptions{}))(t)
	}
	claims := client.CoreV1().PersistentVolumeClaims("default")
	user := workloadtest.Must(claims.Create(ctx, protectionClaim(new("used")),
		metav1.CreateOptions{}))(t).Name
	d := protectionOf{classes.Delete, func(ctx context.Context, name string) (metav1.Object, error) {
		return classes.Get(ctx, name, metav1.GetOptions{})
	}}
	d.heldBy(t, "kubernetes.io/vac-protection", "used", "other")
	workloadtest.OK(t, claims.Delete(ctx, user, metav1.DeleteOptions{}))
	d.gone(t, "used")
}

// TestProtectionRestart deletes claims, volumes and classes while the controllers do not run, and
// changes who uses them.
func TestProtectionRestart(t *testing.T) {
	t.Parallel()
	dir, ctx := t.TempDir(), t.Context()
	run := func(controllers ...string) (*server.Server, kubernetes.Interface) {
		t.Helper()
		s := servertest.Run(t, func(o *server.Options) { o.DataDir, o.Controllers = dir, controllers })
		return s, workloadtest.Client(t, s)
	}
	pod := func(client kubernetes.Interface, name, claim string) {
		t.Helper()
		workloadtest.Must(client.CoreV1().Pods("default").Create(ctx, &corev1.Pod{
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
		c := protectionClaim(nil)
		c.Name = name
		workloadtest.Must(client.CoreV1().PersistentVolumeClaims("default").Create(ctx, c,
			metav1.CreateOptions{}))(t)
	}
	pod(client, "user", "used")
	pod(client, "leaves", "left")
	for _, name := range []string{"class", "kept"} {
		workloadtest.Must(client.StorageV1().VolumeAttributesClasses().Create(ctx,
			&storagev1.VolumeAttributesClass{
				ObjectMeta: metav1.ObjectMeta{Name: name}, DriverName: "example.com",
				Parameters: map[string]string{"a": "b"},
			}, metav1.CreateOptions{}))(t)
	}
	holder := workloadtest.Must(client.CoreV1().PersistentVolumeClaims("default").Create(ctx,
		protectionClaim(new("kept")), metav1.CreateOptions{}))(t).Name
	// The controller waits for the end of the pod when it stops.
	claims := func(client kubernetes.Interface) protectionOf {
		api := client.CoreV1().PersistentVolumeClaims("default")
		return protectionOf{api.Delete, func(ctx context.Context, name string) (metav1.Object, error) {
			return api.Get(ctx, name, metav1.GetOptions{})
		}}
	}
	claims(client).heldBy(t, claimFinalizer, "left", "unused")
	workloadtest.OK(t, s.Stop(ctx))

	s, client = run("-*")
	now := metav1.DeleteOptions{GracePeriodSeconds: new(int64(0))}
	pods, d := client.CoreV1().Pods("default"), claims(client)
	classes := client.StorageV1().VolumeAttributesClasses()
	workloadtest.OK(t, errors.Join(
		pods.Delete(ctx, "leaves", now),
		// Another pod of the same name uses another claim.
		pods.Delete(ctx, "user", now),
		d.delete(ctx, "used", metav1.DeleteOptions{}),
		classes.Delete(ctx, "class", metav1.DeleteOptions{}),
		classes.Delete(ctx, "kept", metav1.DeleteOptions{}),
	))
	pod(client, "user", "taken")
	workloadtest.OK(t, d.delete(ctx, "taken", metav1.DeleteOptions{}))
	workloadtest.OK(t, s.Stop(ctx))

	_, client = run()
	d = claims(client)
	d.gone(t, "left")
	d.gone(t, "used")
	classes = client.StorageV1().VolumeAttributesClasses()
	c := protectionOf{classes.Delete, func(ctx context.Context, name string) (metav1.Object, error) {
		return classes.Get(ctx, name, metav1.GetOptions{})
	}}
	c.gone(t, "class")
	obj := workloadtest.Must(d.get(ctx, "taken"))(t)
	if !slices.Contains(obj.GetFinalizers(), claimFinalizer) {
		t.Errorf("a claim in use has the finalizers %v", obj.GetFinalizers())
	}
	if obj := workloadtest.Must(c.get(ctx, "kept"))(t); len(obj.GetFinalizers()) == 0 {
		t.Error("a class in use has no finalizer")
	}
	// The pod is replaced by one of the same name that does not use the claim.
	workloadtest.OK(t, client.CoreV1().Pods("default").Delete(ctx, "user", now))
	pod(client, "user", "other")
	d.gone(t, "taken")
	workloadtest.OK(t, d.delete(ctx, holder, metav1.DeleteOptions{}))
	c.gone(t, "kept")
}

// TestClaimProtectionTwoWriters changes claims while the controller releases them, and creates
// others of the same name.
func TestClaimProtectionTwoWriters(t *testing.T) {
	t.Parallel()
	client, namespace := shared(t)
	ctx := t.Context()
	claims := client.CoreV1().PersistentVolumeClaims(namespace)
	for range 10 {
		c := protectionClaim(nil)
		c.Name, c.Finalizers = "c", []string{"example.com/other"}
		c = workloadtest.Must(claims.Create(ctx, c, metav1.CreateOptions{}))(t)
		workloadtest.OK(t, claims.Delete(ctx, "c", metav1.DeleteOptions{}))
		for _, patch := range []string{
			`[{"op":"add","path":"/metadata/labels","value":{"a":"b"}}]`,
			`[{"op":"replace","path":"/metadata/labels/a","value":"c"}]`,
		} {
			workloadtest.Must(claims.Patch(ctx, "c", types.JSONPatchType, []byte(patch),
				metav1.PatchOptions{}))(t)
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
		workloadtest.Must(claims.Patch(ctx, "c", types.MergePatchType,
			[]byte(`{"metadata":{"finalizers":null}}`), metav1.PatchOptions{}))(t)
	}
}
