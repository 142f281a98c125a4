package looptest

import (
	"context"
	"fmt"
	"testing"

	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"

	"github.com/kinproc/kinproc/server"
	"github.com/kinproc/kinproc/server/internal/controllers/volumes/ephemeralvolumes"
	"github.com/kinproc/kinproc/server/internal/controllers/volumes/volumebinding"
	"github.com/kinproc/kinproc/server/internal/controllers/workloadtest"
	"github.com/kinproc/kinproc/server/servertest"
)

// volumeBindingRun starts a control plane with the controllers of volumes and claims.
func volumeBindingRun(
	t *testing.T, configure ...func(*server.Options),
) (*server.Server, kubernetes.Interface) {
	t.Helper()
	return workloadtest.Run(t, []string{
		volumebinding.Name, ephemeralvolumes.Name, "pvc-protection", "pv-protection",
	}, configure...)
}

func volumeBindingVolume(name, size string) *corev1.PersistentVolume {
	return &corev1.PersistentVolume{
		ObjectMeta: metav1.ObjectMeta{Name: name},
		Spec: corev1.PersistentVolumeSpec{
			StorageClassName: "manual",
			Capacity: corev1.ResourceList{
				corev1.ResourceStorage: resource.MustParse(size),
			},
			AccessModes:                   []corev1.PersistentVolumeAccessMode{corev1.ReadWriteOnce},
			PersistentVolumeReclaimPolicy: corev1.PersistentVolumeReclaimRetain,
			PersistentVolumeSource: corev1.PersistentVolumeSource{
				HostPath: &corev1.HostPathVolumeSource{Path: "/data"},
			},
		},
	}
}

func volumeBindingClaimSpec(class *string) corev1.PersistentVolumeClaimSpec {
	return corev1.PersistentVolumeClaimSpec{
		StorageClassName: class,
		AccessModes:      []corev1.PersistentVolumeAccessMode{corev1.ReadWriteOnce},
		Resources: corev1.VolumeResourceRequirements{
			Requests: corev1.ResourceList{corev1.ResourceStorage: resource.MustParse("2Gi")},
		},
	}
}

func volumeBindingClaim(name string, class *string) *corev1.PersistentVolumeClaim {
	return &corev1.PersistentVolumeClaim{
		ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: volumeBindingClaimSpec(class),
	}
}

// volumeBindingAwait waits until a claim is bound, and returns its volume.
func volumeBindingAwait(
	t *testing.T, client kubernetes.Interface, namespace, name string,
) *corev1.PersistentVolume {
	t.Helper()
	var v *corev1.PersistentVolume
	workloadtest.Until(t, func(ctx context.Context) string {
		claims := client.CoreV1().PersistentVolumeClaims(namespace)
		claim, err := claims.Get(ctx, name, metav1.GetOptions{})
		if err != nil || claim.Status.Phase != corev1.ClaimBound || len(claim.Status.Capacity) == 0 {
			return fmt.Sprintf("%v; %+v", err, claim)
		}
		v, err = client.CoreV1().PersistentVolumes().Get(ctx, claim.Spec.VolumeName, metav1.GetOptions{})
		if err != nil || v.Status.Phase != corev1.VolumeBound || v.Spec.ClaimRef.UID != claim.UID {
			return fmt.Sprintf("%v; %+v", err, v)
		}
		return ""
	})
	return v
}

func volumeBindingAwaitPhase(
	t *testing.T, client kubernetes.Interface, name string, phase corev1.PersistentVolumePhase,
) {
	t.Helper()
	workloadtest.Until(t, func(ctx context.Context) string {
		v, err := client.CoreV1().PersistentVolumes().Get(ctx, name, metav1.GetOptions{})
		if err != nil || v.Status.Phase != phase {
			return fmt.Sprintf("%v; %+v", err, v)
		}
		return ""
	})
}

// No class appears when the admission plugin is disabled that puts claims into the default one.
func TestVolumeBindingWithoutDefaultClass(t *testing.T) {
	t.Parallel()
	_, client := volumeBindingRun(t, func(o *server.Options) {
		o.Admission = server.NewAdmissionOptions()
		o.Admission.DisablePlugins = []string{"DefaultStorageClass"}
	})
	claims := client.CoreV1().PersistentVolumeClaims(workloadtest.Namespace)
	for name, test := range map[string]struct {
		class *string
		event string
	}{
		"any":      {nil, "no persistent volumes available for this claim and no storage class is set"},
		"standard": {new("standard"), `storageclass.storage.k8s.io "standard" not found`},
	} {
		_, err := claims.Create(t.Context(), volumeBindingClaim(name, test.class),
			metav1.CreateOptions{})
		workloadtest.OK(t, err)
		workloadtest.Until(t, func(ctx context.Context) string {
			events, err := client.CoreV1().Events(workloadtest.Namespace).List(ctx, metav1.ListOptions{
				FieldSelector: "involvedObject.name=" + name,
			})
			if err != nil || len(events.Items) != 1 || events.Items[0].Message != test.event {
				return fmt.Sprintf("%v; %+v", err, events)
			}
			return ""
		})
	}
	classes, err := client.StorageV1().StorageClasses().List(t.Context(), metav1.ListOptions{})
	workloadtest.OK(t, err)
	if len(classes.Items) > 0 {
		t.Errorf("the classes are %+v", classes.Items)
	}
}

// TestVolumeBindingByHand has volumes that differ in size, and a claim that is older than they.
func TestVolumeBindingByHand(t *testing.T) {
	t.Parallel()
	_, client := volumeBindingRun(t)
	claims := client.CoreV1().PersistentVolumeClaims("default")
	volumes := client.CoreV1().PersistentVolumes()
	claim := volumeBindingClaim("waits", new("manual"))
	claim, err := claims.Create(t.Context(), claim, metav1.CreateOptions{})
	workloadtest.OK(t, err)
	for name, size := range map[string]string{"small": "1Gi", "fits": "2Gi", "large": "9Gi"} {
		v := volumeBindingVolume(name, size)
		if name == "large" { // kept for another claim
			v.Spec.ClaimRef = &corev1.ObjectReference{Namespace: "default", Name: "named"}
		}
		_, err := volumes.Create(t.Context(), v, metav1.CreateOptions{})
		workloadtest.OK(t, err)
	}
	if v := volumeBindingAwait(t, client, "default", "waits"); v.Name != "fits" {
		t.Errorf("the claim has the volume %s", v.Name)
	}
	_, err = claims.Create(t.Context(), volumeBindingClaim("named", new("manual")),
		metav1.CreateOptions{})
	workloadtest.OK(t, err)
	if v := volumeBindingAwait(t, client, "default", "named"); v.Name != "large" {
		t.Errorf("the claim has the volume %s", v.Name)
	}
	volumeBindingAwaitPhase(t, client, "small", corev1.VolumeAvailable)

	// A new claim of the same name does not get what the old one has left.
	workloadtest.OK(t, claims.Delete(t.Context(), "waits", metav1.DeleteOptions{
		Preconditions: metav1.NewUIDPreconditions(string(claim.UID)),
	}))
	workloadtest.Until(t, func(ctx context.Context) string {
		_, err := claims.Create(ctx, volumeBindingClaim("waits", new("manual")), metav1.CreateOptions{})
		if err != nil {
			return err.Error()
		}
		return ""
	})
	volumeBindingAwaitPhase(t, client, "fits", corev1.VolumeReleased)
	workloadtest.OK(t, volumes.Delete(t.Context(), "large", metav1.DeleteOptions{}))
	_, err = volumes.Patch(t.Context(), "large", types.MergePatchType,
		[]byte(`{"metadata":{"finalizers":null}}`), metav1.PatchOptions{})
	workloadtest.OK(t, err)
	workloadtest.Until(t, func(ctx context.Context) string {
		claim, err = claims.Get(ctx, "named", metav1.GetOptions{})
		if err != nil || claim.Status.Phase != corev1.ClaimLost {
			return fmt.Sprintf("%v; %+v", err, claim)
		}
		return ""
	})
	// Somebody restores the volume.
	restored := volumeBindingVolume("large", "9Gi")
	restored.Spec.ClaimRef = &corev1.ObjectReference{
		Namespace: "default", Name: "named", UID: claim.UID,
	}
	_, err = volumes.Create(t.Context(), restored, metav1.CreateOptions{})
	workloadtest.OK(t, err)
	volumeBindingAwait(t, client, "default", "named")
	claim, err = claims.Get(t.Context(), "waits", metav1.GetOptions{})
	workloadtest.OK(t, err)
	if claim.Status.Phase != corev1.ClaimPending || claim.Spec.VolumeName != "" {
		t.Errorf("the new claim is %+v", claim)
	}
}

// TestVolumeBindingInterrupted has a volume that refers to a claim that does not refer to the
// volume when it goes.
func TestVolumeBindingInterrupted(t *testing.T) {
	t.Parallel()
	_, client := volumeBindingRun(t)
	claims := client.CoreV1().PersistentVolumeClaims("default")
	volumes := client.CoreV1().PersistentVolumes()
	claim := volumeBindingClaim("goes", new("manual"))
	claim.Finalizers = []string{"example.com/hold"}
	claim, err := claims.Create(t.Context(), claim, metav1.CreateOptions{})
	workloadtest.OK(t, err)
	workloadtest.OK(t, claims.Delete(t.Context(), "goes", metav1.DeleteOptions{}))
	v := volumeBindingVolume("left", "2Gi")
	v.Spec.ClaimRef = &corev1.ObjectReference{Namespace: "default", Name: "goes", UID: claim.UID}
	_, err = volumes.Create(t.Context(), v, metav1.CreateOptions{})
	workloadtest.OK(t, err)
	_, err = volumes.Create(t.Context(), volumeBindingVolume("free", "2Gi"), metav1.CreateOptions{})
	workloadtest.OK(t, err)
	// Once this one is available, the controller has seen the other volume, too.
	volumeBindingAwaitPhase(t, client, "free", corev1.VolumeAvailable)
	_, err = claims.Patch(t.Context(), "goes", types.MergePatchType,
		[]byte(`{"metadata":{"finalizers":null}}`), metav1.PatchOptions{})
	workloadtest.OK(t, err)
	volumeBindingAwaitPhase(t, client, "left", corev1.VolumeReleased)
}

// TestVolumeBindingBetaAnnotation has a claim whose class, which does not exist, is in an
// annotation.
func TestVolumeBindingBetaAnnotation(t *testing.T) {
	t.Parallel()
	_, client := volumeBindingRun(t)
	_, err := client.StorageV1().StorageClasses().Create(t.Context(), &storagev1.StorageClass{
		ObjectMeta: metav1.ObjectMeta{Name: "other"}, Provisioner: "example.com/other",
	}, metav1.CreateOptions{})
	workloadtest.OK(t, err)
	claim := volumeBindingClaim("old", nil)
	claim.Annotations = map[string]string{corev1.BetaStorageClassAnnotation: "missing"}
	_, err = client.CoreV1().PersistentVolumeClaims("default").Create(t.Context(), claim,
		metav1.CreateOptions{})
	workloadtest.OK(t, err)
	workloadtest.Until(t, func(ctx context.Context) string {
		events, err := client.CoreV1().Events("default").List(ctx, metav1.ListOptions{
			FieldSelector: "reason=ProvisioningFailed",
		})
		if err != nil || len(events.Items) == 0 {
			return fmt.Sprintf("%v; no event", err)
		}
		return ""
	})
}

// TestVolumeBindingSimulatedProvisioner has an ephemeral volume of the class that the controller
// makes. The volume is made when the scheduler has chosen a node, and is gone with the pod.
func TestVolumeBindingSimulatedProvisioner(t *testing.T) {
	t.Parallel()
	client, namespace := shared(t)
	claims := client.CoreV1().PersistentVolumeClaims(namespace)
	workloadtest.Until(t, func(ctx context.Context) string {
		_, err := client.CoreV1().Pods(namespace).Create(ctx, &corev1.Pod{
			ObjectMeta: metav1.ObjectMeta{Name: "app"},
			Spec: corev1.PodSpec{
				Containers: []corev1.Container{{Name: "c", Image: "i"}},
				Volumes: []corev1.Volume{{Name: "data", VolumeSource: corev1.VolumeSource{
					Ephemeral: &corev1.EphemeralVolumeSource{
						VolumeClaimTemplate: &corev1.PersistentVolumeClaimTemplate{
							Spec: volumeBindingClaimSpec(nil),
						},
					},
				}}},
			},
		}, metav1.CreateOptions{})
		if err != nil {
			return err.Error()
		}
		return ""
	})
	workloadtest.Until(t, func(ctx context.Context) string {
		claim, err := claims.Get(ctx, "app-data", metav1.GetOptions{})
		if err != nil || claim.Spec.StorageClassName == nil {
			return fmt.Sprintf("%v; %+v", err, claim)
		}
		events, err := client.CoreV1().Events(namespace).List(ctx, metav1.ListOptions{
			FieldSelector: "reason=WaitForFirstConsumer",
		})
		if err != nil || len(events.Items) == 0 {
			return fmt.Sprintf("%v; no event", err)
		}
		return ""
	})
	// The claim is made again while the pod needs it.
	was, err := claims.Get(t.Context(), "app-data", metav1.GetOptions{})
	workloadtest.OK(t, err)
	workloadtest.OK(t, claims.Delete(t.Context(), "app-data", metav1.DeleteOptions{}))
	workloadtest.Until(t, func(ctx context.Context) string {
		claim, err := claims.Get(ctx, "app-data", metav1.GetOptions{})
		if err != nil || claim.UID == was.UID {
			return fmt.Sprintf("%v; %+v", err, claim)
		}
		return ""
	})
	class, err := client.StorageV1().StorageClasses().Get(t.Context(), volumebinding.Class,
		metav1.GetOptions{})
	workloadtest.OK(t, err)
	if *class.VolumeBindingMode != storagev1.VolumeBindingWaitForFirstConsumer {
		t.Errorf("the class is %+v", class)
	}
	_, err = claims.Patch(t.Context(), "app-data", types.MergePatchType,
		[]byte(`{"metadata":{"annotations":{"volume.kubernetes.io/selected-node":"n"}}}`),
		metav1.PatchOptions{})
	workloadtest.OK(t, err)
	v := volumeBindingAwait(t, client, namespace, "app-data")
	if size := v.Spec.Capacity[corev1.ResourceStorage]; size.String() != "2Gi" {
		t.Errorf("the volume is %+v", v)
	}
	pods := client.CoreV1().Pods(namespace)
	workloadtest.OK(t, pods.Delete(t.Context(), "app", metav1.DeleteOptions{}))
	workloadtest.Until(t, func(ctx context.Context) string {
		v, err := client.CoreV1().PersistentVolumes().Get(ctx, v.Name, metav1.GetOptions{})
		if apierrors.IsNotFound(err) {
			return ""
		}
		return fmt.Sprintf("%v; %+v", err, v)
	})
}

const volumeBindingNoFinalizers = `{"metadata":{"finalizers":null}}`

// TestVolumeBindingTwoWriters changes claims and volumes while they are bound, deletes the claims
// and creates others with their names at once.
func TestVolumeBindingTwoWriters(t *testing.T) {
	t.Parallel()
	_, client := volumeBindingRun(t)
	ctx := t.Context()
	claims := client.CoreV1().PersistentVolumeClaims("default")
	volumes := client.CoreV1().PersistentVolumes()
	for i := range 10 {
		name := fmt.Sprint("v", i)
		claim, err := claims.Create(ctx, volumeBindingClaim("c", new("manual")), metav1.CreateOptions{})
		workloadtest.OK(t, err)
		_, err = volumes.Create(ctx, volumeBindingVolume(name, "2Gi"), metav1.CreateOptions{})
		workloadtest.OK(t, err)
		for j := range 5 {
			label := fmt.Appendf(nil, `{"metadata":{"labels":{"a":"b%d"}}}`, j)
			_, err = volumes.Patch(ctx, name, types.MergePatchType, label, metav1.PatchOptions{})
			workloadtest.OK(t, err)
			_, err = claims.Patch(ctx, "c", types.MergePatchType, label, metav1.PatchOptions{})
			workloadtest.OK(t, err)
		}
		v := volumeBindingAwait(t, client, "default", "c")
		if v.Name != name || v.Spec.ClaimRef.UID != claim.UID || v.Labels["a"] != "b4" {
			t.Errorf("round %d: the claim has the volume %+v", i, v)
		}
		workloadtest.OK(t, claims.Delete(ctx, "c", metav1.DeleteOptions{}))
		workloadtest.Until(t, func(ctx context.Context) string {
			left, err := claims.Get(ctx, "c", metav1.GetOptions{})
			if apierrors.IsNotFound(err) {
				return ""
			}
			return fmt.Sprintf("%v; %+v", err, left)
		})
	}
	for i := range 10 {
		volumeBindingAwaitPhase(t, client, fmt.Sprint("v", i), corev1.VolumeReleased)
	}
}

// TestVolumeBindingDyingNamespace deletes a namespace with a claim whose volume was provisioned,
// and with one that has none yet.
func TestVolumeBindingDyingNamespace(t *testing.T) {
	t.Parallel()
	_, client := volumeBindingRun(t)
	ctx := t.Context()
	_, err := client.CoreV1().Namespaces().Create(ctx, &corev1.Namespace{
		ObjectMeta: metav1.ObjectMeta{Name: "dying"},
	}, metav1.CreateOptions{})
	workloadtest.OK(t, err)
	claims := client.CoreV1().PersistentVolumeClaims("dying")
	for _, name := range []string{"bound", "late"} {
		claim := volumeBindingClaim(name, nil)
		claim.Annotations = map[string]string{"volume.kubernetes.io/selected-node": "n"}
		if name == "late" {
			delete(claim.Annotations, "volume.kubernetes.io/selected-node")
			claim.Finalizers = []string{"example.com/hold"}
		}
		_, err := claims.Create(ctx, claim, metav1.CreateOptions{})
		workloadtest.OK(t, err)
	}
	workloadtest.Until(t, func(ctx context.Context) string {
		claim, err := claims.Get(ctx, "bound", metav1.GetOptions{})
		if err != nil || claim.Status.Phase != corev1.ClaimBound {
			return fmt.Sprintf("%v; %+v", err, claim)
		}
		return ""
	})
	workloadtest.OK(t, client.CoreV1().Namespaces().Delete(ctx, "dying", metav1.DeleteOptions{}))
	workloadtest.Until(t, func(ctx context.Context) string {
		claim, err := claims.Get(ctx, "late", metav1.GetOptions{})
		if err != nil || claim.DeletionTimestamp == nil {
			return fmt.Sprintf("%v; %+v", err, claim)
		}
		return ""
	})
	_, err = claims.Patch(ctx, "late", types.MergePatchType,
		[]byte(`{"metadata":{"annotations":{"volume.kubernetes.io/selected-node":"n"}}}`),
		metav1.PatchOptions{})
	workloadtest.OK(t, err)
	_, err = claims.Patch(ctx, "late", types.MergePatchType, []byte(volumeBindingNoFinalizers),
		metav1.PatchOptions{})
	workloadtest.OK(t, err)
	workloadtest.Until(t, func(ctx context.Context) string {
		_, err := client.CoreV1().Namespaces().Get(ctx, "dying", metav1.GetOptions{})
		list, listErr := client.CoreV1().PersistentVolumes().List(ctx, metav1.ListOptions{})
		if apierrors.IsNotFound(err) && listErr == nil && len(list.Items) == 0 {
			return ""
		}
		return fmt.Sprintf("%v, %v; %+v", err, listErr, list)
	})
}

// TestVolumeBindingRestart changes claims and volumes while the controller does not run.
func TestVolumeBindingRestart(t *testing.T) {
	t.Parallel()
	dir, ctx := t.TempDir(), t.Context()
	dataDir := func(o *server.Options) { o.DataDir = dir }
	s, client := volumeBindingRun(t, dataDir)
	claim := func(name string, class *string) *corev1.PersistentVolumeClaim {
		t.Helper()
		made, err := client.CoreV1().PersistentVolumeClaims("default").Create(ctx,
			volumeBindingClaim(name, class), metav1.CreateOptions{})
		workloadtest.OK(t, err)
		return made
	}
	volume := func(name string, ref *corev1.PersistentVolumeClaim) {
		t.Helper()
		v := volumeBindingVolume(name, "2Gi")
		if ref != nil {
			v.Annotations = map[string]string{"pv.kubernetes.io/bound-by-controller": "yes"}
			v.Spec.ClaimRef = &corev1.ObjectReference{
				Kind: "PersistentVolumeClaim", Namespace: "default", Name: ref.Name, UID: ref.UID,
			}
		}
		_, err := client.CoreV1().PersistentVolumes().Create(ctx, v, metav1.CreateOptions{})
		workloadtest.OK(t, err)
	}
	onNode := func(name string) {
		t.Helper()
		_, err := client.CoreV1().PersistentVolumeClaims("default").Patch(ctx, name,
			types.MergePatchType,
			[]byte(`{"metadata":{"annotations":{"volume.kubernetes.io/selected-node":"n"}}}`),
			metav1.PatchOptions{})
		workloadtest.OK(t, err)
	}
	had := map[string]string{}
	for _, name := range []string{"kept", "recreated", "lost"} {
		claim(name, new("manual"))
		volume(name, nil)
		had[name] = volumeBindingAwait(t, client, "default", name).Name
	}
	claim("provisioned", nil)
	onNode("provisioned")
	had["provisioned"] = volumeBindingAwait(t, client, "default", "provisioned").Name
	claim("waits", nil)
	workloadtest.AwaitEvent(t, client, "default", "waits", "WaitForFirstConsumer")
	workloadtest.OK(t, s.Stop(context.WithoutCancel(ctx)))

	s, client = volumeBindingRun(t, dataDir, servertest.WithoutControllers)
	claims, volumes := client.CoreV1().PersistentVolumeClaims("default"),
		client.CoreV1().PersistentVolumes()
	for _, name := range []string{"recreated", "provisioned"} {
		workloadtest.OK(t, claims.Delete(ctx, name, metav1.DeleteOptions{}))
		_, err := claims.Patch(ctx, name, types.MergePatchType, []byte(volumeBindingNoFinalizers),
			metav1.PatchOptions{})
		workloadtest.OK(t, err)
	}
	workloadtest.OK(t, volumes.Delete(ctx, had["lost"], metav1.DeleteOptions{}))
	_, err := volumes.Patch(ctx, had["lost"], types.MergePatchType, []byte(volumeBindingNoFinalizers),
		metav1.PatchOptions{})
	workloadtest.OK(t, err)
	claim("recreated", new("manual"))
	// The controller was stopped between the volume and the claim.
	volume("half", claim("half", new("manual")))
	onNode("waits")
	workloadtest.OK(t, s.Stop(context.WithoutCancel(ctx)))

	_, client = volumeBindingRun(t, dataDir)
	claims, volumes = client.CoreV1().PersistentVolumeClaims("default"),
		client.CoreV1().PersistentVolumes()
	if v := volumeBindingAwait(t, client, "default", "half"); v.Name != "half" {
		t.Errorf("an interrupted binding was completed with the volume %s", v.Name)
	}
	volumeBindingAwait(t, client, "default", "waits")
	volumeBindingAwaitPhase(t, client, had["recreated"], corev1.VolumeReleased)
	volume("free", nil)
	if v := volumeBindingAwait(t, client, "default", "recreated"); v.Name != "free" {
		t.Errorf("a new claim has the volume %s", v.Name)
	}
	if v := volumeBindingAwait(t, client, "default", "kept"); v.Name != had["kept"] {
		t.Errorf("a claim has the volume %s, it had %s", v.Name, had["kept"])
	}
	workloadtest.Until(t, func(ctx context.Context) string {
		lost, err := claims.Get(ctx, "lost", metav1.GetOptions{})
		if err != nil || lost.Status.Phase != corev1.ClaimLost {
			return fmt.Sprintf("%v; %+v", err, lost)
		}
		return ""
	})
	workloadtest.Until(t, func(ctx context.Context) string {
		v, err := volumes.Get(ctx, had["provisioned"], metav1.GetOptions{})
		if apierrors.IsNotFound(err) {
			return ""
		}
		return fmt.Sprintf("%v; %+v", err, v)
	})
}
