package admission

import (
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apiserver/pkg/admission"
)

// privilegedFields returns the fields that the rule objects to.
func privilegedFields(t *testing.T, object runtime.Object, subresource string) []string {
	t.Helper()
	a := admission.NewAttributesRecord(object, nil, schema.GroupVersionKind{Kind: "K"}, "default", "n",
		schema.GroupVersionResource{}, subresource, admission.Create, nil, false, nil)
	rule := RefusePrivileged(alwaysAdmit{}).(admission.ValidationInterface)
	err := rule.Validate(t.Context(), a, nil)
	if err == nil {
		return nil
	}
	status, ok := err.(*apierrors.StatusError)
	if !ok || status.Status().Code != 422 {
		t.Fatalf("%T %v", err, err)
	}
	var fields []string
	for _, cause := range status.Status().Details.Causes {
		if cause.Type != metav1.CauseTypeForbidden {
			t.Errorf("%s: %s", cause.Field, cause.Type)
		}
		fields = append(fields, cause.Field)
	}
	return fields
}

func TestRefusePrivileged(t *testing.T) {
	t.Parallel()
	privileged := corev1.PodSpec{Containers: []corev1.Container{
		{SecurityContext: &corev1.SecurityContext{Privileged: new(false)}},
		{SecurityContext: &corev1.SecurityContext{Privileged: new(true)}},
	}}
	template := corev1.PodTemplateSpec{Spec: privileged}
	const inTemplate = "spec.template.spec.containers[1].securityContext.privileged"
	onHost := &corev1.WindowsSecurityContextOptions{HostProcess: new(true)}
	for field, objects := range map[string][]runtime.Object{
		"spec.containers[1].securityContext.privileged": {&corev1.Pod{Spec: privileged}},
		"template.spec.containers[1].securityContext.privileged": {
			&corev1.PodTemplate{Template: template},
		},
		inTemplate: {
			&corev1.ReplicationController{Spec: corev1.ReplicationControllerSpec{Template: &template}},
			&appsv1.ReplicaSet{Spec: appsv1.ReplicaSetSpec{Template: template}},
			&appsv1.Deployment{Spec: appsv1.DeploymentSpec{Template: template}},
			&appsv1.StatefulSet{Spec: appsv1.StatefulSetSpec{Template: template}},
			&appsv1.DaemonSet{Spec: appsv1.DaemonSetSpec{Template: template}},
			&batchv1.Job{Spec: batchv1.JobSpec{Template: template}},
		},
		"spec.jobTemplate.spec.template.spec.containers[1].securityContext.privileged": {
			&batchv1.CronJob{Spec: batchv1.CronJobSpec{
				JobTemplate: batchv1.JobTemplateSpec{Spec: batchv1.JobSpec{Template: template}},
			}},
		},
		"spec.initContainers[0].securityContext.privileged": {&corev1.Pod{Spec: corev1.PodSpec{
			InitContainers: privileged.Containers[1:],
		}}},
		"spec.ephemeralContainers[0].securityContext.privileged": {&corev1.Pod{Spec: corev1.PodSpec{
			EphemeralContainers: []corev1.EphemeralContainer{{
				EphemeralContainerCommon: corev1.EphemeralContainerCommon(privileged.Containers[1]),
			}},
		}}},
		"spec": {
			&corev1.Pod{Spec: corev1.PodSpec{
				SecurityContext: &corev1.PodSecurityContext{WindowsOptions: onHost},
				Containers:      []corev1.Container{{}},
			}},
			&corev1.Pod{Spec: corev1.PodSpec{Containers: []corev1.Container{
				{SecurityContext: &corev1.SecurityContext{WindowsOptions: onHost}},
			}}},
		},
	} {
		for _, object := range objects {
			if got := privilegedFields(t, object, ""); len(got) != 1 || got[0] != field {
				t.Errorf("%T: %q, want %s", object, got, field)
			}
		}
	}
	for _, object := range []runtime.Object{
		&corev1.Pod{}, &corev1.ReplicationController{}, &corev1.Secret{},
	} {
		if got := privilegedFields(t, object, ""); got != nil {
			t.Errorf("%T: %q", object, got)
		}
	}
	if got := privilegedFields(t, &corev1.Pod{Spec: privileged}, "status"); got != nil {
		t.Errorf("status: %q", got)
	}
}
