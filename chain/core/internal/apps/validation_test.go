package apps

import (
	"slices"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/apimachinery/pkg/util/validation/field"
	genericapirequest "k8s.io/apiserver/pkg/endpoints/request"

	"github.com/kinproc/kinproc/chain/kind"
	"github.com/kinproc/kinproc/chain/kind/kindtest"
)

func template() corev1.PodTemplateSpec {
	return corev1.PodTemplateSpec{
		ObjectMeta: metav1.ObjectMeta{Labels: map[string]string{"app": "x"}},
		Spec:       corev1.PodSpec{Containers: []corev1.Container{{Name: "c", Image: "i"}}},
	}
}

func selector() *metav1.LabelSelector {
	return &metav1.LabelSelector{MatchLabels: map[string]string{"app": "x"}}
}

func deployment() *appsv1.Deployment {
	return &appsv1.Deployment{Spec: appsv1.DeploymentSpec{Selector: selector(), Template: template()}}
}

func statefulSet() *appsv1.StatefulSet {
	return &appsv1.StatefulSet{
		Spec: appsv1.StatefulSetSpec{Selector: selector(), Template: template()},
	}
}

func daemonSet() *appsv1.DaemonSet {
	return &appsv1.DaemonSet{Spec: appsv1.DaemonSetSpec{Selector: selector(), Template: template()}}
}

// changed applies a change to a valid object and sets its defaults.
func changed[T kind.Object](k *kind.Kind[T], valid T, change func(T)) T {
	change(valid)
	k.Default(valid)
	return valid
}

func expect(t *testing.T, name string, errs field.ErrorList, want ...string) {
	t.Helper()
	slices.Sort(want)
	if got := kindtest.Causes(errs); !slices.Equal(got, want) {
		t.Errorf("%s: got %q, want %q", name, got, want)
	}
}

func TestDeployments(t *testing.T) {
	t.Parallel()
	k := Deployments()
	for name, c := range map[string]struct {
		change func(*appsv1.Deployment)
		want   []string
	}{
		"valid": {func(*appsv1.Deployment) {}, nil},
		"unknown strategy": {func(d *appsv1.Deployment) {
			d.Spec.Strategy.Type = "Blue"
		}, []string{"spec.strategy NotSupported"}},
		"no progress possible": {func(d *appsv1.Deployment) {
			d.Spec.Strategy.RollingUpdate = &appsv1.RollingUpdateDeployment{
				MaxSurge:       new(intstr.FromInt32(0)),
				MaxUnavailable: new(intstr.FromString("0%")),
			}
		}, []string{"spec.strategy.rollingUpdate.maxUnavailable Invalid"}},
		"any surge": {func(d *appsv1.Deployment) {
			d.Spec.Strategy.RollingUpdate = &appsv1.RollingUpdateDeployment{
				MaxSurge: new(intstr.FromString("300%")),
			}
		}, nil},
		"negative surge": {func(d *appsv1.Deployment) {
			d.Spec.Strategy.RollingUpdate = &appsv1.RollingUpdateDeployment{
				MaxSurge: new(intstr.FromInt32(-1)),
			}
		}, []string{"spec.strategy.rollingUpdate.maxSurge Invalid"}},
		"negative rollback": {func(d *appsv1.Deployment) {
			d.Annotations = map[string]string{appsv1.DeprecatedRollbackTo: "-3"}
		},
			[]string{"spec.rollback.version Invalid"}},
		"negative minReadySeconds": {func(d *appsv1.Deployment) {
			d.Spec.MinReadySeconds = -1
		}, []string{"spec.minReadySeconds Invalid"}},
	} {
		expect(t, name, k.Validate(t.Context(), changed(k, deployment(), c.change)), c.want...)
	}

	old := changed(k, deployment(), func(*appsv1.Deployment) {})
	annotated := changed(k, deployment(), func(d *appsv1.Deployment) {
		d.Annotations = map[string]string{"a": "b"}
	})
	if k.SameGeneration(annotated, old) {
		t.Error("changing an annotation does not increment the generation")
	}
	old.Status.CollisionCount = new(int32(2))
	status := changed(k, deployment(), func(d *appsv1.Deployment) {
		d.Status = appsv1.DeploymentStatus{
			Replicas:          1,
			ReadyReplicas:     2,
			AvailableReplicas: 1,
			CollisionCount:    new(int32(1)),
		}
	})
	status.Labels = map[string]string{"of": "the status"}
	if k.Status.Prepare(t.Context(), status, old); status.Labels != nil {
		t.Errorf("a status update changed the labels: %v", status.Labels)
	}
	expect(t, "status", k.Status.Validate(t.Context(), status, old),
		"status.readyReplicas Invalid", "status.collisionCount Invalid")
}

func TestRollingUpdateOnDelete(t *testing.T) {
	t.Parallel()
	d := daemonSet()
	d.Spec.UpdateStrategy = appsv1.DaemonSetUpdateStrategy{
		Type:          appsv1.OnDeleteDaemonSetStrategyType,
		RollingUpdate: &appsv1.RollingUpdateDaemonSet{},
	}
	defaultDaemonSet(d)
	if r := d.Spec.UpdateStrategy.RollingUpdate; r.MaxUnavailable == nil || r.MaxSurge == nil ||
		r.MaxUnavailable.IntValue() != 0 {
		t.Errorf("got %v, want zeros", r)
	}
}

func TestAnnotationsThatWereFields(t *testing.T) {
	t.Parallel()
	for value, want := range map[string]string{"": "", "07": "7", "+5": "5", "x": "x"} {
		d := deployment()
		d.Annotations = map[string]string{appsv1.DeprecatedRollbackTo: value}
		if defaultDeployment(d); d.Annotations[appsv1.DeprecatedRollbackTo] != want {
			t.Errorf("rollback to %q was defaulted to %v, want %q", value, d.Annotations, want)
		}
	}
	k := DaemonSets()
	d := daemonSet()
	if err := k.Refuse(t.Context(), d); err != nil {
		t.Error(err)
	}
	d.Annotations = map[string]string{appsv1.DeprecatedTemplateGeneration: "one"}
	if err := k.Refuse(t.Context(), d); !apierrors.IsBadRequest(err) {
		t.Errorf("template generation one: %v, want a bad request", err)
	}
	patch := genericapirequest.WithRequestInfo(t.Context(),
		&genericapirequest.RequestInfo{Verb: "patch"})
	if err := k.Refuse(patch, d); !apierrors.IsInvalid(err) {
		t.Errorf("a patch to template generation one: %v, want an invalid patch", err)
	}
}

func TestStatefulSets(t *testing.T) {
	t.Parallel()
	k := StatefulSets()
	for name, c := range map[string]struct {
		change func(*appsv1.StatefulSet)
		want   []string
	}{
		"mounts a claim": {func(s *appsv1.StatefulSet) {
			claim := corev1.PersistentVolumeClaim{ObjectMeta: metav1.ObjectMeta{Name: "data"}}
			claim.Spec.AccessModes = []corev1.PersistentVolumeAccessMode{corev1.ReadWriteOnce}
			s.Spec.VolumeClaimTemplates = []corev1.PersistentVolumeClaim{claim}
			s.Spec.Template.Spec.Containers[0].VolumeMounts = []corev1.VolumeMount{
				{Name: "data", MountPath: "/data"},
			}
		}, []string{"spec.volumeClaimTemplates[0].spec.resources[storage] Required"}},
		"hostname, which is set for each pod": {func(s *appsv1.StatefulSet) {
			s.Spec.Template.Spec.Hostname = "Not_A_Label"
		}, nil},
		"volume behind a claim": {func(s *appsv1.StatefulSet) {
			claim := corev1.PersistentVolumeClaim{ObjectMeta: metav1.ObjectMeta{Name: "data"}}
			claim.Spec.AccessModes = []corev1.PersistentVolumeAccessMode{corev1.ReadWriteOnce}
			claim.Spec.Resources.Requests = corev1.ResourceList{"storage": resource.MustParse("1Gi")}
			s.Spec.VolumeClaimTemplates = []corev1.PersistentVolumeClaim{claim}
			s.Spec.Template.Spec.Volumes = []corev1.Volume{{Name: "v"}, {Name: "data"}, {}}
		}, []string{"spec.template.spec.volumes[2].name Required"}},
		"negative ordinal": {
			func(s *appsv1.StatefulSet) { s.Spec.Ordinals = &appsv1.StatefulSetOrdinals{Start: -1} },
			[]string{"spec.ordinals.start Invalid"},
		},
		"rolling on delete": {func(s *appsv1.StatefulSet) {
			s.Spec.UpdateStrategy = appsv1.StatefulSetUpdateStrategy{
				Type:          appsv1.OnDeleteStatefulSetStrategyType,
				RollingUpdate: &appsv1.RollingUpdateStatefulSetStrategy{},
			}
		}, []string{"spec.updateStrategy.rollingUpdate Invalid"}},
	} {
		expect(t, name, k.Validate(t.Context(), changed(k, statefulSet(), c.change)), c.want...)
	}

	old := changed(k, statefulSet(), func(s *appsv1.StatefulSet) {
		s.Spec.ServiceName = "Old_One"
		s.Spec.Template.Spec.Containers[0].Image = ""
	})
	expect(t, "stored before the rule existed",
		k.ValidateUpdate(t.Context(), changed(k, old.DeepCopy(), func(s *appsv1.StatefulSet) {
			s.Spec.Replicas, s.Spec.RevisionHistoryLimit = new(int32(5)), new(int32(-1))
		}), old))
	valid := changed(k, statefulSet(), func(*appsv1.StatefulSet) {})
	expect(t, "invalid value of an immutable field",
		k.ValidateUpdate(t.Context(), changed(k, valid.DeepCopy(), func(s *appsv1.StatefulSet) {
			s.Spec.ServiceName = "Not_A_Label"
		}), valid), "spec.serviceName Invalid")
	expect(t, "additional invalid claim",
		k.ValidateUpdate(t.Context(), changed(k, valid.DeepCopy(), func(s *appsv1.StatefulSet) {
			s.Spec.VolumeClaimTemplates = []corev1.PersistentVolumeClaim{{}}
		}), valid), "spec.template.spec.volumes[0].name Required",
		"spec.template.spec.volumes[0].persistentVolumeClaim.claimName Required",
		"spec.volumeClaimTemplates Invalid")
	expect(t, "template that becomes invalid",
		k.ValidateUpdate(t.Context(), changed(k, valid.DeepCopy(), func(s *appsv1.StatefulSet) {
			s.Spec.Template.Spec.Containers[0].Image = ""
		}), valid), "spec.template.spec.containers[0].image Required")
	expect(t, "immutable field",
		k.ValidateUpdate(t.Context(), changed(k, old.DeepCopy(), func(s *appsv1.StatefulSet) {
			s.Spec.PodManagementPolicy = appsv1.ParallelPodManagement
		}), old), "spec.podManagementPolicy Invalid")
	if n := len(k.Warnings(t.Context(), changed(k, statefulSet(), func(s *appsv1.StatefulSet) {
		s.Spec.RevisionHistoryLimit = new(int32(-1))
	}), nil)); n != 1 {
		t.Errorf("got %d warnings about a negative revisionHistoryLimit, want 1", n)
	}
}

func TestControllerRevisions(t *testing.T) {
	t.Parallel()
	k := ControllerRevisions()
	revision := func(data string) *appsv1.ControllerRevision {
		r := &appsv1.ControllerRevision{}
		if data != "" {
			r.Data.Raw = []byte(data)
		}
		return r
	}
	for data, want := range map[string][]string{
		`{"a":1}`: nil, "": {"data Required"}, "[]": {"data Required"}, "}": {"data Invalid"},
	} {
		expect(t, data, k.Validate(t.Context(), revision(data)), want...)
	}
	expect(t, "removed", k.ValidateUpdate(t.Context(), revision(""), revision("{}")), "data Invalid")
}

func TestDaemonSetTemplateGeneration(t *testing.T) {
	t.Parallel()
	k := DaemonSets()
	old := changed(k, daemonSet(), func(*appsv1.DaemonSet) {})
	k.PrepareCreate(t.Context(), old)
	expect(t, "valid", k.Validate(t.Context(), old))
	for name, c := range map[string]struct {
		change func(*appsv1.DaemonSet)
		want   int64
	}{
		"same template": {func(d *appsv1.DaemonSet) { d.Spec.MinReadySeconds = 3 }, 1},
		"other template": {func(d *appsv1.DaemonSet) {
			d.Spec.Template.Spec.Containers[0].Image = "j"
		}, 2},
		"set by the client":   {func(d *appsv1.DaemonSet) { setTemplateGeneration(d, 7) }, 1},
		"left out by clients": {func(d *appsv1.DaemonSet) { d.Annotations = nil }, 1},
	} {
		d := changed(k, daemonSet(), c.change)
		k.PrepareUpdate(t.Context(), d, old)
		if got := templateGeneration(d); got != c.want {
			t.Errorf("%s: template generation %d, want %d", name, got, c.want)
		}
	}
}
