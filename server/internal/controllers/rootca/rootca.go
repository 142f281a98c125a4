// Package rootca keeps the config map kube-root-ca.crt in every namespace. Pods mount it to verify
// the API server.
package rootca

import (
	"context"

	corev1 "k8s.io/api/core/v1"
	apiequality "k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	coreinformers "k8s.io/client-go/informers/core/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/cache"

	"github.com/kinproc/kinproc/server/internal/controllers/pernamespace"
)

const (
	// Name is the name of the controller in kube-controller-manager.
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

// Controller keeps the config map in every namespace.
type Controller struct{ keeper pernamespace.Keeper }

// New returns a controller that publishes bundle, which contains PEM certificates. The caller
// starts the informers, of which configMaps is one of the config maps named ConfigMap.
func New(
	client kubernetes.Interface, namespaces coreinformers.NamespaceInformer,
	configMaps cache.SharedIndexInformer, bundle []byte,
) *Controller {
	namespaces.Informer() // registers it with the caller's factory
	data := map[string]string{Key: string(bundle)}
	return &Controller{pernamespace.Keeper{
		Controller: Name,
		Namespaces: namespaces,
		Objects:    configMaps,
		Ensure: func(ctx context.Context, namespace string, current any) error {
			configMaps := client.CoreV1().ConfigMaps(namespace)
			if current == nil {
				_, err := configMaps.Create(ctx, &corev1.ConfigMap{
					ObjectMeta: metav1.ObjectMeta{
						Name:        ConfigMap,
						Annotations: map[string]string{descriptionAnnotation: description},
					},
					Data: data,
				}, metav1.CreateOptions{})
				return err
			}
			is := current.(*corev1.ConfigMap)
			if apiequality.Semantic.DeepEqual(is.Data, data) && is.Annotations[descriptionAnnotation] != "" {
				return nil
			}
			is = is.DeepCopy()
			is.Data = data
			metav1.SetMetaDataAnnotation(&is.ObjectMeta, descriptionAnnotation, description)
			_, err := configMaps.Update(ctx, is, metav1.UpdateOptions{})
			return err
		},
	}}
}

// Run runs the controller until ctx ends. It returns when all goroutines of the controller have
// ended.
func (c *Controller) Run(ctx context.Context) error { return c.keeper.Run(ctx) }
