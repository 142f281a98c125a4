package serviceaccount

import (
	"context"
	"encoding/json"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	coreclient "k8s.io/client-go/kubernetes/typed/core/v1"
)

// Objects looks up service accounts and the objects that tokens are bound to.
type Objects interface {
	// LabelSecret sets a label of a secret.
	LabelSecret(ctx context.Context, secret *corev1.Secret, key, value string) error
	ServiceAccount(ctx context.Context, namespace, name string) (*corev1.ServiceAccount, error)
	Secret(ctx context.Context, namespace, name string) (*corev1.Secret, error)
	Pod(ctx context.Context, namespace, name string) (*corev1.Pod, error)
	Node(ctx context.Context, name string) (*corev1.Node, error)
}

// FromClient returns Objects that uses the given client. The client itself must not authenticate
// with a service account token.
func FromClient(client coreclient.CoreV1Interface) Objects { return clientObjects{client} }

type clientObjects struct{ client coreclient.CoreV1Interface }

func (o clientObjects) ServiceAccount(
	ctx context.Context, namespace, name string,
) (*corev1.ServiceAccount, error) {
	return o.client.ServiceAccounts(namespace).Get(ctx, name, metav1.GetOptions{})
}

func (o clientObjects) Secret(ctx context.Context, namespace, name string) (*corev1.Secret, error) {
	return o.client.Secrets(namespace).Get(ctx, name, metav1.GetOptions{})
}

func (o clientObjects) LabelSecret(
	ctx context.Context, secret *corev1.Secret, key, value string,
) error {
	patch, err := json.Marshal(map[string]any{"metadata": map[string]any{
		"uid":    secret.UID, // of another secret with the same name, this is a conflict
		"labels": map[string]string{key: value},
	}})
	if err != nil {
		return err
	}
	_, err = o.client.Secrets(secret.Namespace).Patch(ctx, secret.Name, types.MergePatchType, patch,
		metav1.PatchOptions{})
	return err
}

func (o clientObjects) Pod(ctx context.Context, namespace, name string) (*corev1.Pod, error) {
	return o.client.Pods(namespace).Get(ctx, name, metav1.GetOptions{})
}

func (o clientObjects) Node(ctx context.Context, name string) (*corev1.Node, error) {
	return o.client.Nodes().Get(ctx, name, metav1.GetOptions{})
}
