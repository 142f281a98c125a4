package apitest

import (
	"context"
	"testing"

	authenticationv1 "k8s.io/api/authentication/v1"
	certificatesv1 "k8s.io/api/certificates/v1"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	resourcev1 "k8s.io/api/resource/v1"
	storagev1 "k8s.io/api/storage/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"

	"github.com/kinproc/kinproc/server"
)

// nodeRestriction starts a control plane with the nodes "own" and "other". It also returns a client
// of the kubelet on "own", which RBAC allows almost everything.
func nodeRestriction(
	t *testing.T,
) (s *server.Server, admin, kubelet kubernetes.Interface, own types.UID) {
	t.Helper()
	s, admin = quiet(t, enable("NodeRestriction"))
	allow(t, admin, rbacv1.Subject{APIGroup: rbacv1.GroupName, Kind: "Group", Name: "system:nodes"},
		rbacv1.PolicyRule{
			APIGroups: []string{"*"},
			Resources: []string{"*"},
			Verbs:     []string{"get", "list", "create", "update", "patch", "delete"},
		})
	kubelet = as(t, s, "system:node:own", "system:nodes")
	eventually(t, "own node", func() error { return createNode(t.Context(), kubelet, "own") })
	if err := createNode(t.Context(), admin, "other"); err != nil {
		t.Fatal(err)
	}
	must(admin.CoreV1().ServiceAccounts("default").Create(t.Context(), &corev1.ServiceAccount{
		ObjectMeta: metav1.ObjectMeta{Name: "default"},
	}, metav1.CreateOptions{}))(t)
	return s, admin, kubelet,
		must(admin.CoreV1().Nodes().Get(t.Context(), "own", metav1.GetOptions{}))(t).UID
}

// TestAdmissionNodeRestriction sends requests that RBAC allows the kubelet of the node "own".
func TestAdmissionNodeRestriction(t *testing.T) {
	t.Parallel()
	s, admin, kubelet, nodeUID := nodeRestriction(t)
	ctx := t.Context()
	uids := map[string]types.UID{}
	for name, on := range map[string]string{"mine": "own", "evicted": "own", "theirs": "other"} {
		uids[name] = must(admin.CoreV1().Pods("default").Create(ctx, newPod(func(p *corev1.Pod) {
			p.Name, p.Spec.NodeName = name, on
		}), metav1.CreateOptions{}))(t).UID
	}
	must(admin.CoreV1().PersistentVolumeClaims("default").Create(ctx, &corev1.PersistentVolumeClaim{
		ObjectMeta: metav1.ObjectMeta{Name: "claim"},
		Spec: corev1.PersistentVolumeClaimSpec{
			AccessModes: []corev1.PersistentVolumeAccessMode{corev1.ReadWriteOnce},
			Resources:   corev1.VolumeResourceRequirements{Requests: quantities("storage", "1Gi")},
		},
	}, metav1.CreateOptions{}))(t)

	mirror := func(change ...func(*corev1.Pod)) error {
		pod := newPod(change...)
		pod.GenerateName, pod.Name = "mirror-", ""
		_, err := kubelet.CoreV1().Pods("default").Create(ctx, pod, metav1.CreateOptions{})
		return err
	}
	static := func(p *corev1.Pod) {
		p.Annotations = map[string]string{corev1.MirrorPodAnnotationKey: "x"}
		p.Spec.NodeName = "own"
		p.OwnerReferences = []metav1.OwnerReference{
			{APIVersion: "v1", Kind: "Node", Name: "own", UID: nodeUID, Controller: new(true)},
		}
	}
	volume := func(v corev1.VolumeSource) func(*corev1.Pod) {
		return func(p *corev1.Pod) { p.Spec.Volumes = []corev1.Volume{{Name: "v", VolumeSource: v}} }
	}
	projected := func(s corev1.VolumeProjection) func(*corev1.Pod) {
		return volume(corev1.VolumeSource{
			Projected: &corev1.ProjectedVolumeSource{Sources: []corev1.VolumeProjection{s}},
		})
	}
	environment := func(e corev1.EnvVarSource) func(*corev1.Pod) {
		return func(p *corev1.Pod) {
			p.Spec.Containers[0].Env = []corev1.EnvVar{{Name: "X", ValueFrom: &e}}
		}
	}
	local := corev1.LocalObjectReference{Name: "x"}
	for name, c := range map[string]struct {
		change  []func(*corev1.Pod)
		refused bool
	}{
		"mirror": {[]func(*corev1.Pod){static}, false},
		"not a mirror": {
			[]func(*corev1.Pod){static, func(p *corev1.Pod) { p.Annotations = nil }}, true,
		},
		"on another node": {
			[]func(*corev1.Pod){static, func(p *corev1.Pod) { p.Spec.NodeName = "other" }}, true,
		},
		"no owner": {
			[]func(*corev1.Pod){static, func(p *corev1.Pod) { p.OwnerReferences = nil }}, true,
		},
		"other owner": {
			[]func(*corev1.Pod){static, func(p *corev1.Pod) { p.OwnerReferences[0].Name = "other" }}, true,
		},
		"no controller": {
			[]func(*corev1.Pod){static, func(p *corev1.Pod) { p.OwnerReferences[0].Controller = nil }}, true,
		},
		"blocks its owner": {[]func(*corev1.Pod){static, func(p *corev1.Pod) {
			p.OwnerReferences[0].BlockOwnerDeletion = new(true)
		}}, true},
		"other UID": {
			[]func(*corev1.Pod){static, func(p *corev1.Pod) { p.OwnerReferences[0].UID = "x" }}, true,
		},
		"empty directory": {[]func(*corev1.Pod){static, volume(corev1.VolumeSource{
			EmptyDir: &corev1.EmptyDirVolumeSource{},
		})}, false},
		"secret": {[]func(*corev1.Pod){static, environment(corev1.EnvVarSource{
			SecretKeyRef: &corev1.SecretKeySelector{LocalObjectReference: local, Key: "k"},
		})}, true},
		"config map": {[]func(*corev1.Pod){static, environment(corev1.EnvVarSource{
			ConfigMapKeyRef: &corev1.ConfigMapKeySelector{LocalObjectReference: local, Key: "k"},
		})}, true},
		"config volume": {[]func(*corev1.Pod){static, volume(corev1.VolumeSource{
			ConfigMap: &corev1.ConfigMapVolumeSource{LocalObjectReference: local},
		})}, true},
		"claim": {[]func(*corev1.Pod){static, volume(corev1.VolumeSource{
			PersistentVolumeClaim: &corev1.PersistentVolumeClaimVolumeSource{ClaimName: "x"},
		})}, true},
		"driver": {[]func(*corev1.Pod){static, volume(corev1.VolumeSource{
			CSI: &corev1.CSIVolumeSource{Driver: "d"},
		})}, true},
		"token": {[]func(*corev1.Pod){static, projected(corev1.VolumeProjection{
			ServiceAccountToken: &corev1.ServiceAccountTokenProjection{Path: "t"},
		})}, true},
		"downward API": {[]func(*corev1.Pod){static, projected(corev1.VolumeProjection{
			DownwardAPI: &corev1.DownwardAPIProjection{Items: []corev1.DownwardAPIVolumeFile{
				{Path: "n", FieldRef: &corev1.ObjectFieldSelector{FieldPath: "metadata.name"}}}},
		})}, false},
		"device": {[]func(*corev1.Pod){static, func(p *corev1.Pod) {
			p.Spec.ResourceClaims = []corev1.PodResourceClaim{{Name: "d", ResourceClaimName: new("x")}}
		}}, true},
	} {
		checkRefused(t, "mirror pod: "+name, mirror(c.change...), c.refused)
	}

	patch := func(
		client kubernetes.Interface, resource, name, body string, subresources ...string,
	) error {
		r := client.CoreV1().RESTClient().Patch(types.MergePatchType).Resource(resource).Name(name).
			Body([]byte(body)).SubResource(subresources...)
		if resource != "nodes" {
			r = r.Namespace("default")
		}
		return r.Do(ctx).Error()
	}
	for body, refused := range map[string]bool{
		`{"metadata":{"annotations":{"a":"b"}}}`: false,
		`{"metadata":{"labels":{"a":"b","example.com/a":"b",
			"topology.kubernetes.io/zone":"z"}}}`: false,
		`{"metadata":{"labels":{"kubelet.kubernetes.io/a":"b",
			"my.node.kubernetes.io/a":"b"}}}`: false,
		`{"metadata":{"labels":{"kubernetes.io/role":"master"}}}`:          true,
		`{"metadata":{"labels":{"x.k8s.io/a":"b"}}}`:                       true,
		`{"metadata":{"labels":{"node-restriction.kubernetes.io/a":"b"}}}`: true,
		`{"metadata":{"ownerReferences":[{"apiVersion":"v1","kind":"Node",
			"name":"x","uid":"x"}]}}`: true,
		`{"spec":{"taints":null}}`: true,
		`{"spec":{"configSource":{"configMap":{"namespace":"n","name":"n","uid":"u",
			"kubeletConfigKey":"k"}}}}`: true,
		`{"spec":{"unschedulable":true}}`: false,
	} {
		checkRefused(t, "own node: "+body, patch(kubelet, "nodes", "own", body), refused)
		checkRefused(t, "other node: "+body, patch(kubelet, "nodes", "other", body), true)
	}
	checkRefused(t, "status of the own node",
		patch(kubelet, "nodes", "own", `{"status":{"phase":"Running"}}`, "status"), false)
	checkRefused(t, "taint by status",
		patch(kubelet, "nodes", "own", `{"spec":{"taints":[]}}`, "status"), true)
	checkRefused(t, "another node", createNode(ctx, kubelet, "third"), true)
	checkRefused(t, "another kubelet's node", createNode(ctx,
		as(t, s, "system:node:third", "system:nodes"), "third", "kubernetes.io/role"), true)
	checkRefused(t, "nobody's node",
		createNode(ctx, as(t, s, "system:node:", "system:nodes"), "fourth"), true)
	checkRefused(t, "another kubelet's own node", createNode(ctx,
		as(t, s, "system:node:third", "system:nodes"), "third", "kubernetes.io/os"), false)
	checkRefused(t, "delete another node",
		kubelet.CoreV1().Nodes().Delete(ctx, "other", metav1.DeleteOptions{}), true)

	checkRefused(t, "status of a pod",
		patch(kubelet, "pods", "mine", `{"status":{"message":"m"}}`, "status"), false)
	checkRefused(t, "status of another node's pod",
		patch(kubelet, "pods", "theirs", `{"status":{"message":"m"}}`, "status"), true)
	checkRefused(t, "labels by status",
		patch(kubelet, "pods", "mine", `{"metadata":{"labels":{"a":"b"}}}`, "status"), true)
	checkRefused(t, "devices by status", patch(kubelet, "pods", "mine",
		`{"status":{"resourceClaimStatuses":[{"name":"c","resourceClaimName":"x"}]}}`, "status"), true)
	checkRefused(t, "change of a pod",
		patch(kubelet, "pods", "mine", `{"metadata":{"labels":{"a":"b"}}}`), true)
	evict := func(name string) error {
		return kubelet.CoreV1().Pods("default").EvictV1(ctx,
			&policyv1.Eviction{ObjectMeta: metav1.ObjectMeta{Name: name}})
	}
	checkRefused(t, "evict another node's pod", evict("theirs"), true)
	checkRefused(t, "evict", evict("evicted"), false)
	checkRefused(t, "delete another node's pod",
		kubelet.CoreV1().Pods("default").Delete(ctx, "theirs", metav1.DeleteOptions{}), true)
	if err := kubelet.CoreV1().Pods("default").Delete(ctx, "none",
		metav1.DeleteOptions{}); !apierrors.IsNotFound(err) {
		t.Errorf("delete a missing pod: got %v, want NotFound", err)
	}

	checkRefused(t, "capacity of a claim", patch(kubelet, "persistentvolumeclaims", "claim",
		`{"status":{"capacity":{"storage":"1Gi"},"allocatedResources":{"storage":"1Gi"}}}`, "status"),
		false)
	checkRefused(t, "phase of a claim",
		patch(kubelet, "persistentvolumeclaims", "claim", `{"status":{"phase":"Bound"}}`, "status"), true)
	checkRefused(t, "finalizers of a claim", patch(kubelet, "persistentvolumeclaims", "claim",
		`{"metadata":{"finalizers":["example.com/x"]}}`, "status"), true)
	checkRefused(t, "claim",
		patch(kubelet, "persistentvolumeclaims", "claim", `{"metadata":{"labels":{"a":"b"}}}`), true)

	token := func(pod string, uid types.UID, audiences ...string) error {
		_, err := kubelet.CoreV1().ServiceAccounts("default").CreateToken(ctx, "default",
			&authenticationv1.TokenRequest{Spec: authenticationv1.TokenRequestSpec{
				Audiences: audiences,
				BoundObjectRef: &authenticationv1.BoundObjectReference{
					APIVersion: "v1",
					Kind:       "Pod",
					Name:       pod,
					UID:        uid,
				},
			}}, metav1.CreateOptions{})
		return err
	}
	_, unbound := kubelet.CoreV1().ServiceAccounts("default").CreateToken(ctx, "default",
		&authenticationv1.TokenRequest{}, metav1.CreateOptions{})
	checkRefused(t, "unbound token", unbound, true)
	checkRefused(t, "token", token("mine", uids["mine"]), false)
	checkRefused(t, "token of another UID", token("mine", "x"), true)
	checkRefused(t, "token without UID", token("mine", ""), true)
	checkRefused(t, "token of another node's pod", token("theirs", uids["theirs"]), true)
	checkRefused(t, "token for two", token("mine", uids["mine"], "a", "b"), true)
	checkRefused(t, "token for somebody", token("mine", uids["mine"], "vault"), true)
	allow(t, admin, rbacv1.Subject{APIGroup: rbacv1.GroupName, Kind: "User", Name: "system:node:own"},
		rbacv1.PolicyRule{
			APIGroups:     []string{""},
			Resources:     []string{"vault"},
			ResourceNames: []string{"default"},
			Verbs:         []string{"request-serviceaccounts-token-audience"},
		})
	eventually(t, "token for somebody who is allowed", func() error {
		return token("mine", uids["mine"], "vault")
	})

	lease := func(namespace, name string) error {
		_, err := kubelet.CoordinationV1().Leases(namespace).Create(ctx,
			&coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{Name: name}}, metav1.CreateOptions{})
		return err
	}
	must(admin.CoordinationV1().Leases("kube-node-lease").Create(ctx,
		&coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{Name: "other"}}, metav1.CreateOptions{}))(t)
	checkRefused(t, "lease", lease("kube-node-lease", "own"), false)
	checkRefused(t, "lease of another name", lease("kube-node-lease", "third"), true)
	checkRefused(t, "lease of another namespace", lease("default", "own"), true)
	checkRefused(t, "delete another lease",
		kubelet.CoordinationV1().Leases("kube-node-lease").Delete(ctx, "other", metav1.DeleteOptions{}),
		true)
	drivers := func(name string) error {
		_, err := kubelet.StorageV1().CSINodes().Create(ctx,
			&storagev1.CSINode{ObjectMeta: metav1.ObjectMeta{Name: name}}, metav1.CreateOptions{})
		return err
	}
	checkRefused(t, "CSI node", drivers("own"), false)
	checkRefused(t, "another CSI node", drivers("other"), true)
	slice := func(client kubernetes.Interface, node string) (*resourcev1.ResourceSlice, error) {
		return client.ResourceV1().ResourceSlices().Create(ctx, &resourcev1.ResourceSlice{
			ObjectMeta: metav1.ObjectMeta{GenerateName: "s-"},
			Spec: resourcev1.ResourceSliceSpec{
				Driver:   "d.example.com",
				NodeName: &node,
				Pool:     resourcev1.ResourcePool{Name: node, ResourceSliceCount: 1},
			},
		}, metav1.CreateOptions{})
	}
	_, err := slice(kubelet, "own")
	checkRefused(t, "slice", err, false)
	_, err = slice(kubelet, "other")
	checkRefused(t, "slice of another node", err, true)
	theirs := must(slice(admin, "other"))(t)
	checkRefused(t, "delete a slice of another node",
		kubelet.ResourceV1().ResourceSlices().Delete(ctx, theirs.Name, metav1.DeleteOptions{}), true)

	certificate := func(name, signer string) error {
		_, err := kubelet.CertificatesV1().CertificateSigningRequests().Create(ctx,
			&certificatesv1.CertificateSigningRequest{
				ObjectMeta: metav1.ObjectMeta{GenerateName: "r-"},
				Spec: certificatesv1.CertificateSigningRequestSpec{
					SignerName: signer,
					Request:    newCertificateRequest(t, name, "system:nodes"),
					Usages:     []certificatesv1.KeyUsage{certificatesv1.UsageDigitalSignature},
				},
			}, metav1.CreateOptions{})
		return err
	}
	checkRefused(t, "certificate",
		certificate("system:node:own", certificatesv1.KubeAPIServerClientKubeletSignerName), false)
	checkRefused(t, "certificate of another node",
		certificate("system:node:other", certificatesv1.KubeletServingSignerName), true)
	checkRefused(t, "certificate of another signer", certificate("jane", "example.com/signer"), false)

	checkRefused(t, "somebody of another group", patch(as(t, s, "system:node:own", "system:masters"),
		"nodes", "other", `{"metadata":{"labels":{"a":"b"}}}`), false)
}

func createNode(
	ctx context.Context, client kubernetes.Interface, name string, labels ...string,
) error {
	node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{}}}
	for _, l := range labels {
		node.Labels[l] = "x"
	}
	_, err := client.CoreV1().Nodes().Create(ctx, node, metav1.CreateOptions{})
	return err
}

// TestAdmissionNodeRestrictionAudiences requests tokens, as a kubelet, for the audiences of the CSI
// drivers behind a pod's volumes.
func TestAdmissionNodeRestrictionAudiences(t *testing.T) {
	t.Parallel()
	_, admin, kubelet, _ := nodeRestriction(t)
	ctx := t.Context()
	for _, driver := range []string{"driver.example.com", "file.csi.azure.com"} {
		must(admin.StorageV1().CSIDrivers().Create(ctx, &storagev1.CSIDriver{
			ObjectMeta: metav1.ObjectMeta{Name: driver},
			Spec: storagev1.CSIDriverSpec{
				TokenRequests: []storagev1.TokenRequest{{Audience: "vault"}},
			},
		}, metav1.CreateOptions{}))(t)
	}
	for name, source := range map[string]corev1.PersistentVolumeSource{
		"claim": {
			CSI: &corev1.CSIPersistentVolumeSource{Driver: "driver.example.com", VolumeHandle: "h"},
		},
		"old-claim": {AzureFile: &corev1.AzureFilePersistentVolumeSource{
			ShareName:       "s",
			SecretName:      "s",
			SecretNamespace: new("default"),
		}},
		"ephemeral-v": {
			CSI: &corev1.CSIPersistentVolumeSource{Driver: "driver.example.com", VolumeHandle: "h"},
		},
		"other-claim": {
			CSI: &corev1.CSIPersistentVolumeSource{Driver: "other.example.com", VolumeHandle: "h"},
		},
	} {
		modes := []corev1.PersistentVolumeAccessMode{corev1.ReadWriteOnce}
		must(admin.CoreV1().PersistentVolumes().Create(ctx, &corev1.PersistentVolume{
			ObjectMeta: metav1.ObjectMeta{Name: name},
			Spec: corev1.PersistentVolumeSpec{
				AccessModes: modes, Capacity: quantities("storage", "1Gi"), PersistentVolumeSource: source,
			},
		}, metav1.CreateOptions{}))(t)
		must(admin.CoreV1().PersistentVolumeClaims("default").Create(ctx, &corev1.PersistentVolumeClaim{
			ObjectMeta: metav1.ObjectMeta{Name: name},
			Spec: corev1.PersistentVolumeClaimSpec{
				AccessModes: modes,
				VolumeName:  name,
				Resources:   corev1.VolumeResourceRequirements{Requests: quantities("storage", "1Gi")},
			},
		}, metav1.CreateOptions{}))(t)
	}
	claim := func(name string) corev1.VolumeSource {
		return corev1.VolumeSource{
			PersistentVolumeClaim: &corev1.PersistentVolumeClaimVolumeSource{ClaimName: name},
		}
	}
	template := &corev1.PersistentVolumeClaimTemplate{Spec: corev1.PersistentVolumeClaimSpec{
		AccessModes: []corev1.PersistentVolumeAccessMode{corev1.ReadWriteOnce},
		Resources:   corev1.VolumeResourceRequirements{Requests: quantities("storage", "1Gi")},
	}}
	for name, c := range map[string]struct {
		source  corev1.VolumeSource
		refused bool
	}{
		"projected": {
			corev1.VolumeSource{Projected: &corev1.ProjectedVolumeSource{Sources: []corev1.VolumeProjection{
				{ServiceAccountToken: &corev1.ServiceAccountTokenProjection{Audience: "vault", Path: "t"}}}}},
			false,
		},
		"driver": {
			corev1.VolumeSource{CSI: &corev1.CSIVolumeSource{Driver: "driver.example.com"}}, false,
		},
		"other-driver": {
			corev1.VolumeSource{CSI: &corev1.CSIVolumeSource{Driver: "other.example.com"}}, true,
		},
		"claimed":     {claim("claim"), false},
		"old-claimed": {claim("old-claim"), false},
		"other-claim": {claim("other-claim"), true},
		"no-claim":    {claim("none"), true},
		"ephemeral": {
			corev1.VolumeSource{Ephemeral: &corev1.EphemeralVolumeSource{VolumeClaimTemplate: template}},
			false,
		},
		"old-inline": {
			corev1.VolumeSource{AzureFile: &corev1.AzureFileVolumeSource{ShareName: "s", SecretName: "s"}},
			false,
		},
		"empty": {corev1.VolumeSource{EmptyDir: &corev1.EmptyDirVolumeSource{}}, true},
	} {
		pod := must(admin.CoreV1().Pods("default").Create(ctx, newPod(func(p *corev1.Pod) {
			p.Name, p.Spec.NodeName, p.Spec.Volumes = name, "own",
				[]corev1.Volume{{Name: "v", VolumeSource: c.source}}
		}), metav1.CreateOptions{}))(t)
		_, err := kubelet.CoreV1().ServiceAccounts("default").CreateToken(ctx, "default",
			&authenticationv1.TokenRequest{Spec: authenticationv1.TokenRequestSpec{
				Audiences: []string{"vault"},
				BoundObjectRef: &authenticationv1.BoundObjectReference{
					APIVersion: "v1",
					Kind:       "Pod",
					Name:       name,
					UID:        pod.UID,
				},
			}}, metav1.CreateOptions{})
		checkRefused(t, name, err, c.refused)
	}
}

// TestAdmissionNodeRestrictionPodCertificates requests pod certificates as a kubelet. Requests that
// pass admission are invalid, because they have no key.
func TestAdmissionNodeRestrictionPodCertificates(t *testing.T) {
	t.Parallel()
	_, admin, kubelet, nodeUID := nodeRestriction(t)
	ctx := t.Context()
	certificate := corev1.VolumeSource{
		Projected: &corev1.ProjectedVolumeSource{Sources: []corev1.VolumeProjection{
			{PodCertificate: &corev1.PodCertificateProjection{
				SignerName:           "example.com/a",
				KeyType:              "ED25519",
				CredentialBundlePath: "c",
			}},
		}},
	}
	uids := map[string]types.UID{
		"node": nodeUID,
		"default": must(admin.CoreV1().ServiceAccounts("default").Get(ctx, "default",
			metav1.GetOptions{}))(t).UID,
	}
	for name, on := range map[string]string{"mine": "own", "theirs": "other"} {
		uids[name] = must(admin.CoreV1().Pods("default").Create(ctx, newPod(func(p *corev1.Pod) {
			p.Name, p.Spec.NodeName, p.Spec.Volumes = name, on,
				[]corev1.Volume{{Name: "v", VolumeSource: certificate}}
		}), metav1.CreateOptions{}))(t).UID
	}
	for name, c := range map[string]struct {
		change func(*certificatesv1.PodCertificateRequestSpec)
		want   metav1.StatusReason
	}{
		"own": {
			func(*certificatesv1.PodCertificateRequestSpec) {}, metav1.StatusReasonInvalid,
		},
		"other node": {func(s *certificatesv1.PodCertificateRequestSpec) {
			s.NodeName = "other"
		}, metav1.StatusReasonForbidden},
		"other node UID": {func(s *certificatesv1.PodCertificateRequestSpec) {
			s.NodeUID = "x"
		}, metav1.StatusReasonUnknown},
		"no pod": {func(s *certificatesv1.PodCertificateRequestSpec) {
			s.PodName = "none"
		}, metav1.StatusReasonUnknown},
		"other pod UID": {func(s *certificatesv1.PodCertificateRequestSpec) {
			s.PodUID = "x"
		}, metav1.StatusReasonUnknown},
		"other node's": {func(s *certificatesv1.PodCertificateRequestSpec) {
			s.PodName, s.PodUID = "theirs", uids["theirs"]
		}, metav1.StatusReasonForbidden},
		"other account": {func(s *certificatesv1.PodCertificateRequestSpec) {
			s.ServiceAccountName = "other"
		}, metav1.StatusReasonForbidden},
		"old account UID": {func(s *certificatesv1.PodCertificateRequestSpec) {
			s.ServiceAccountUID = "x"
		}, metav1.StatusReasonUnknown},
		"other signer": {func(s *certificatesv1.PodCertificateRequestSpec) {
			s.SignerName = "example.com/b"
		}, metav1.StatusReasonForbidden},
	} {
		request := &certificatesv1.PodCertificateRequest{
			ObjectMeta: metav1.ObjectMeta{GenerateName: "r-"},
			Spec: certificatesv1.PodCertificateRequestSpec{
				SignerName:         "example.com/a",
				NodeName:           "own",
				NodeUID:            uids["node"],
				PodName:            "mine",
				PodUID:             uids["mine"],
				ServiceAccountName: "default",
				ServiceAccountUID:  uids["default"],
			},
		}
		c.change(&request.Spec)
		_, err := kubelet.CertificatesV1().PodCertificateRequests("default").Create(ctx, request,
			metav1.CreateOptions{})
		if got := apierrors.ReasonForError(err); err == nil || got != c.want {
			t.Errorf("%s: got error %v, want reason %q", name, err, c.want)
		}
	}
}
