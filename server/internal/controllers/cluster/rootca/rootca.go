// Package rootca keeps the config map kube-root-ca.crt in every namespace. Pods mount it to verify
// the API server.
package rootca

import (
	"context"
	"maps"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	corev1client "k8s.io/client-go/kubernetes/typed/core/v1"

	"github.com/kinproc/kinproc/server/internal/controllers/cluster/pernamespace"
	"github.com/kinproc/kinproc/server/internal/controllers/loop"
)

const (
	// Name is the name of the loop in kube-controller-manager.
	Name = "root-ca-certificate-publisher-controller"
	// ConfigMap is the name of the config map, and Key is the key of the certificates in it.
	ConfigMap = "kube-root-ca.crt"
	Key       = "ca.crt"

	// descriptionAnnotation is an annotation that kube-controller-manager sets too. The text is for
	// humans.
	descriptionAnnotation = "kubernetes.io/description"
	description           = "CA certificates for verifying the API server at its internal " +
		"addresses, " +
		"for clients inside the cluster; they do not verify other servers."
)

// Loop is the loop that keeps the config map in every namespace. Bundle contains PEM certificates.
func Loop(bundle []byte) loop.Loop {
	return loop.Loop{
		Name: Name, Alias: "root-ca-cert-publisher",
		Purpose: `creates the ConfigMap "kube-root-ca.crt" in each namespace`,
		Workers: 2,
		Begin: func(c *loop.Controller) loop.Work {
			return pernamespace.Keeper{
				Objects: c.Named(&corev1.ConfigMap{}, ConfigMap),
				Ensure: func(ctx context.Context, namespace string, current any) error {
					return ensure(ctx, c.Client.CoreV1().ConfigMaps(namespace), current, bundle)
				},
			}.Work(c)
		},
	}
}

func ensure(
	ctx context.Context, client corev1client.ConfigMapInterface, current any, bundle []byte,
) error {
	data := map[string]string{Key: string(bundle)}
	if current == nil {
		_, err := client.Create(ctx, &corev1.ConfigMap{
			ObjectMeta: metav1.ObjectMeta{
				Name:        ConfigMap,
				Annotations: map[string]string{descriptionAnnotation: description},
			},
			Data: data,
		}, metav1.CreateOptions{})
		return err
	}
	found := current.(*corev1.ConfigMap)
	if maps.Equal(found.Data, data) && found.Annotations[descriptionAnnotation] != "" {
		return nil
	}
	found = found.DeepCopy()
	found.Data = data
	metav1.SetMetaDataAnnotation(&found.ObjectMeta, descriptionAnnotation, description)
	_, err := client.Update(ctx, found, metav1.UpdateOptions{})
	return err
}
