package apitest

import (
	"fmt"
	"testing"

	authorizationv1 "k8s.io/api/authorization/v1"
	certificatesv1 "k8s.io/api/certificates/v1"
	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/yaml"

	"github.com/kinproc/kinproc/server"
	"github.com/kinproc/kinproc/server/internal/auth"
)

// TestNodeAuthorizer checks the permissions of kubelets where pods refer to claims, claims to
// volumes, and volumes to secrets.
func TestNodeAuthorizer(t *testing.T) {
	t.Parallel()
	_, client := quiet(t, func(o *server.Options) {
		o.AuthorizationModes = []string{auth.ModeNode, auth.ModeRBAC}
	})
	ctx := t.Context()
	check := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	_, err := client.CoreV1().ServiceAccounts("default").Create(ctx,
		&corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Name: "default"}}, metav1.CreateOptions{})
	check(err)
	for _, node := range []string{"mine", "other"} {
		pod := &corev1.Pod{}
		check(yaml.UnmarshalStrict(
			[]byte(`{metadata: {name: `+node+`}, spec: {nodeName: `+node+`, serviceAccountName: default,
			containers: [{name: c, image: i}], volumes: [{name: v, persistentVolumeClaim: {claimName: `+
				node+`}}],
			resourceClaims: [{name: d, resourceClaimName: `+node+`}]}}`), pod))
		_, err := client.CoreV1().Pods("default").Create(ctx, pod, metav1.CreateOptions{})
		check(err)
		volume := &corev1.PersistentVolume{}
		check(yaml.UnmarshalStrict([]byte(`{metadata: {name: `+node+
			`}, spec: {capacity: {storage: 1Gi}, accessModes: [ReadWriteOnce],
			claimRef: {namespace: default, name: `+node+`}, csi: {driver: d.example, volumeHandle: h,
			nodeStageSecretRef: {namespace: vault, name: `+node+
			`}, controllerPublishSecretRef: {namespace: vault, name: controller}}}}`), volume))
		_, err = client.CoreV1().PersistentVolumes().Create(ctx, volume, metav1.CreateOptions{})
		check(err)
		_, err = client.StorageV1().VolumeAttachments().Create(ctx, &storagev1.VolumeAttachment{
			ObjectMeta: metav1.ObjectMeta{Name: node},
			Spec: storagev1.VolumeAttachmentSpec{
				Attacher: "d.example",
				NodeName: node,
				Source:   storagev1.VolumeAttachmentSource{PersistentVolumeName: &node},
			},
		}, metav1.CreateOptions{})
		check(err)
	}
	for _, test := range []struct {
		verb, group, resource, namespace, name, onNode string
		allowed                                        bool
	}{
		{verb: "list", resource: "pods", onNode: "mine", allowed: true},
		{verb: "list", resource: "pods", onNode: "other"},
		{
			verb:      "get",
			resource:  "persistentvolumeclaims",
			namespace: "default",
			name:      "mine",
			allowed:   true,
		},
		{verb: "get", resource: "persistentvolumeclaims", namespace: "default", name: "other"},
		{verb: "get", resource: "persistentvolumes", name: "mine", allowed: true},
		{verb: "get", resource: "persistentvolumes", name: "other"},
		{verb: "get", resource: "persistentvolumes", name: "nowhere"},
		{verb: "get", resource: "secrets", namespace: "vault", name: "mine", allowed: true},
		{verb: "get", resource: "secrets", namespace: "vault", name: "other"},
		{verb: "get", resource: "secrets", namespace: "vault", name: "controller"},
		{
			verb:     "get",
			group:    storagev1.GroupName,
			resource: "volumeattachments",
			name:     "mine",
			allowed:  true,
		},
		{verb: "get", group: storagev1.GroupName, resource: "volumeattachments", name: "other"},
		{
			verb:      "get",
			group:     "resource.k8s.io",
			resource:  "resourceclaims",
			namespace: "default",
			name:      "mine",
			allowed:   true,
		},
		{
			verb:      "get",
			group:     "resource.k8s.io",
			resource:  "resourceclaims",
			namespace: "default",
			name:      "other",
		},
		{
			verb:     "watch",
			group:    "resource.k8s.io",
			resource: "resourceslices",
			onNode:   "mine",
			allowed:  true,
		},
		{verb: "watch", group: "resource.k8s.io", resource: "resourceslices"},
		{
			verb:     "watch",
			group:    certificatesv1.GroupName,
			resource: "podcertificaterequests",
			onNode:   "mine",
			allowed:  true,
		},
		{verb: "watch", group: certificatesv1.GroupName, resource: "podcertificaterequests"},
	} {
		review := &authorizationv1.SubjectAccessReview{Spec: authorizationv1.SubjectAccessReviewSpec{
			User: "system:node:mine", Groups: []string{"system:nodes"},
			ResourceAttributes: &authorizationv1.ResourceAttributes{
				Verb:      test.verb,
				Group:     test.group,
				Resource:  test.resource,
				Namespace: test.namespace,
				Name:      test.name,
			},
		}}
		if test.onNode != "" {
			review.Spec.ResourceAttributes.FieldSelector = &authorizationv1.FieldSelectorAttributes{
				Requirements: []metav1.FieldSelectorRequirement{
					{Key: "spec.nodeName", Operator: metav1.FieldSelectorOpIn, Values: []string{test.onNode}},
				},
			}
		}
		// The authorizer reads the objects from watch caches.
		eventually(t, fmt.Sprintf("%+v", test), func() error {
			answer, err := client.AuthorizationV1().SubjectAccessReviews().Create(ctx, review,
				metav1.CreateOptions{})
			if err == nil && answer.Status.Allowed != test.allowed {
				err = fmt.Errorf("%+v", answer.Status)
			}
			return err
		})
	}
}
