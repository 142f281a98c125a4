package admission

import (
	"context"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/apiserver/pkg/admission"
	"k8s.io/apiserver/pkg/storage/names"

	"github.com/kinproc/kinproc/server/internal/admission/plugin"
	"github.com/kinproc/kinproc/server/internal/podreferences"
)

const (
	defaultServiceAccount = "default"
	// accountWait is how long a pod waits for its service account, which the controller may be
	// about to create. kube-apiserver waits for one second, which is too short when the control
	// planes of a test suite share a busy machine.
	accountWait = 5 * time.Second

	// tokenMountPath is where client libraries look for the token.
	tokenMountPath = "/var/run/secrets/kubernetes.io/serviceaccount"
	tokenVolume    = "kube-api-access-"
	// this value marks automatically mounted tokens, whose lifetime may be extended
	tokenSeconds     = 3607
	rootCAConfigMap  = "kube-root-ca.crt"
	mountableSecrets = "kubernetes.io/enforce-mountable-secrets"
)

// serviceAccount (ServiceAccount) sets the service account of a pod, mounts its token, and adds its
// image pull secrets.
type serviceAccount struct {
	*admission.Handler
	plugin.WantsClient
}

func newServiceAccount() admission.Interface {
	return &serviceAccount{Handler: admission.NewHandler(admission.Create, admission.Update)}
}

func (p *serviceAccount) Admit(
	ctx context.Context, a admission.Attributes, _ admission.ObjectInterfaces,
) error {
	pod, ok, err := plugin.Object[*corev1.Pod](a, pods)
	if !ok || a.GetOperation() != admission.Create {
		return err
	}
	if plugin.IsMirror(pod) {
		return validateMirror(a, pod)
	}
	if pod.Spec.ServiceAccountName == "" {
		pod.Spec.ServiceAccountName = defaultServiceAccount
		pod.Spec.DeprecatedServiceAccount = defaultServiceAccount
	}
	account, err := p.account(ctx, a, pod.Spec.ServiceAccountName)
	if err != nil {
		return err
	}
	if wantsToken(account, pod) {
		mountToken(pod)
	}
	if len(pod.Spec.ImagePullSecrets) == 0 {
		pod.Spec.ImagePullSecrets = slices.Clone(account.ImagePullSecrets)
	}
	// as in kube-apiserver, before the pod itself is validated
	return validateSecrets(a, account, pod, false)
}

func (p *serviceAccount) Validate(
	ctx context.Context, a admission.Attributes, _ admission.ObjectInterfaces,
) error {
	ephemeral := plugin.Is(a, pods, "ephemeralcontainers") && a.GetOperation() == admission.Update
	if !ephemeral && (!plugin.Is(a, pods, "") || a.GetOperation() != admission.Create) {
		return nil
	}
	pod, err := plugin.Cast[*corev1.Pod](a.GetObject())
	if err != nil {
		return err
	}
	if plugin.IsMirror(pod) && !ephemeral {
		return validateMirror(a, pod)
	}
	if pod.Spec.ServiceAccountName == "" {
		return plugin.Forbid(a, "the pod has no service account")
	}
	account, err := p.account(ctx, a, pod.Spec.ServiceAccountName)
	if err != nil {
		return err
	}
	return validateSecrets(a, account, pod, ephemeral)
}

// account returns a service account. If the default account does not exist yet, it waits for it.
func (p *serviceAccount) account(
	ctx context.Context, a admission.Attributes, name string,
) (*corev1.ServiceAccount, error) {
	accounts := p.Client.CoreV1().ServiceAccounts(a.GetNamespace())
	account, err := accounts.Get(ctx, name, metav1.GetOptions{})
	if apierrors.IsNotFound(err) && name == defaultServiceAccount {
		account, err = p.await(ctx, a.GetNamespace(), name)
	}
	if err != nil {
		return nil, plugin.Forbid(a, "service account %s/%s: %w", a.GetNamespace(), name, err)
	}
	return account, nil
}

func (p *serviceAccount) await(
	ctx context.Context, namespace, name string,
) (*corev1.ServiceAccount, error) {
	limited, cancel := context.WithTimeout(ctx, accountWait)
	defer cancel()
	w, err := p.Client.CoreV1().ServiceAccounts(namespace).Watch(limited, metav1.ListOptions{
		FieldSelector: fields.OneTermEqualSelector(metav1.ObjectNameField, name).String(),
	})
	if err == nil {
		defer w.Stop()
		for e := range w.ResultChan() { // starts with existing objects, ends with the context
			if account, ok := e.Object.(*corev1.ServiceAccount); ok && e.Type != watch.Deleted {
				return account, nil
			}
		}
	}
	return p.Client.CoreV1().ServiceAccounts(namespace).Get(ctx, name, metav1.GetOptions{})
}

// validateMirror rejects mirror pods that use service accounts or secrets. Nodes run them without
// asking the API server.
func validateMirror(a admission.Attributes, pod *corev1.Pod) error {
	if pod.Spec.ServiceAccountName != "" {
		return plugin.Forbid(a, "a mirror pod may not have a service account")
	}
	for _, volume := range pod.Spec.Volumes {
		if volume.Projected != nil && slices.ContainsFunc(volume.Projected.Sources,
			func(s corev1.VolumeProjection) bool { return s.ServiceAccountToken != nil }) {
			return plugin.Forbid(a,
				"volume %q: a mirror pod may not use service account tokens", volume.Name)
		}
	}
	for name := range podreferences.Secrets(&pod.Spec) {
		return plugin.Forbid(a, "secret %q: a mirror pod may not use secrets", name)
	}
	return nil
}

// wantsToken reports whether to mount a token. The pod decides, then its service account. The
// default is true.
func wantsToken(account *corev1.ServiceAccount, pod *corev1.Pod) bool {
	switch {
	case pod.Spec.AutomountServiceAccountToken != nil:
		return *pod.Spec.AutomountServiceAccountToken
	case account.AutomountServiceAccountToken != nil:
		return *account.AutomountServiceAccountToken
	}
	return true
}

// mountToken mounts the token, the CA certificates of the API server and the namespace's name in
// all containers that mount nothing else at tokenMountPath.
func mountToken(pod *corev1.Pod) {
	name := ""
	taken := sets.New[string]()
	for _, v := range pod.Spec.Volumes {
		taken.Insert(v.Name)
		if name == "" && strings.HasPrefix(v.Name, tokenVolume) {
			name = v.Name
		}
	}
	for name == "" {
		if generated := names.SimpleNameGenerator.GenerateName(tokenVolume); !taken.Has(generated) {
			name = generated
		}
	}
	mounted := false
	plugin.Containers(&pod.Spec, func(c *corev1.Container) {
		if slices.ContainsFunc(c.VolumeMounts,
			func(m corev1.VolumeMount) bool { return m.MountPath == tokenMountPath }) {
			return
		}
		c.VolumeMounts = append(c.VolumeMounts, corev1.VolumeMount{
			Name:      name,
			ReadOnly:  true,
			MountPath: tokenMountPath,
		})
		mounted = true
	})
	if mounted && !taken.Has(name) {
		pod.Spec.Volumes = append(pod.Spec.Volumes, corev1.Volume{
			Name:         name,
			VolumeSource: corev1.VolumeSource{Projected: tokenSource()},
		})
	}
}

func tokenSource() *corev1.ProjectedVolumeSource {
	return &corev1.ProjectedVolumeSource{
		DefaultMode: new(corev1.ProjectedVolumeSourceDefaultMode),
		Sources: []corev1.VolumeProjection{
			{ServiceAccountToken: &corev1.ServiceAccountTokenProjection{
				Path:              "token",
				ExpirationSeconds: new(int64(tokenSeconds)),
			}},
			{ConfigMap: &corev1.ConfigMapProjection{
				LocalObjectReference: corev1.LocalObjectReference{Name: rootCAConfigMap},
				Items:                []corev1.KeyToPath{{Key: "ca.crt", Path: "ca.crt"}},
			}},
			{DownwardAPI: &corev1.DownwardAPIProjection{Items: []corev1.DownwardAPIVolumeFile{{
				Path:     "namespace",
				FieldRef: &corev1.ObjectFieldSelector{APIVersion: "v1", FieldPath: "metadata.namespace"},
			}}}},
		},
	}
}

// validateSecrets restricts a pod to the secrets that its service account lists, if the account's
// annotation demands it.
func validateSecrets(
	a admission.Attributes, account *corev1.ServiceAccount, pod *corev1.Pod, ephemeral bool,
) error {
	if enforced, err := strconv.ParseBool(account.Annotations[mountableSecrets]); err != nil ||
		!enforced {
		return nil
	}
	allowed, pull := sets.New[string](), sets.New[string]()
	for _, s := range account.Secrets {
		allowed.Insert(s.Name)
	}
	for _, s := range account.ImagePullSecrets {
		pull.Insert(s.Name)
	}
	// Only these parts of a pod are checked. Image pull secrets have a separate list.
	looked := &corev1.PodSpec{EphemeralContainers: pod.Spec.EphemeralContainers}
	if !ephemeral {
		looked = &corev1.PodSpec{InitContainers: pod.Spec.InitContainers, Containers: pod.Spec.Containers}
		for _, v := range pod.Spec.Volumes {
			if v.Secret != nil {
				looked.Volumes = append(looked.Volumes, v)
			}
		}
	}
	if extra := podreferences.Secrets(looked).Difference(allowed); len(extra) > 0 {
		return plugin.Forbid(a, "the service account %q does not allow its pods to use the secrets %s",
			account.Name, quoted(extra))
	}
	if ephemeral {
		return nil
	}
	for i, s := range pod.Spec.ImagePullSecrets {
		if !pull.Has(s.Name) {
			return plugin.Forbid(a, "spec.imagePullSecrets[%d]: the service account %q does not allow its "+
				"pods to use the secret %q", i, account.Name, s.Name)
		}
	}
	return nil
}

func quoted(names sets.Set[string]) string {
	return fmt.Sprintf("%q", sets.List(names))
}
