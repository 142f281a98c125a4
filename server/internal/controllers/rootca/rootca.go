// Package rootca keeps the config map kube-root-ca.crt in every namespace. Pods mount it to verify the API server.
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
	// Name is kube-controller-manager's name of the loop.
	Name = "root-ca-certificate-publisher-controller"
	// ConfigMap is the name of the config map, and Key that of the entry with the certificates.
	ConfigMap = "kube-root-ca.crt"
	Key       = "ca.crt"

	// descriptionAnnotation has the annotation's key as kube-controller-manager sets it; the text is for people.
	descriptionAnnotation = "kubernetes.io/description"
	description           = "Certificates with which clients inside the cluster verify the API server's internal addresses; " +
		"they say nothing about other servers."
)

// Controller is the control loop.
type Controller struct{ keeper pernamespace.Keeper }

// New makes a controller that publishes bundle, certificates in PEM. The caller starts the informer of namespaces.
func New(client kubernetes.Interface, namespaces coreinformers.NamespaceInformer, bundle []byte) *Controller {
	namespaces.Informer() // so that the caller's factory knows of it
	data := map[string]string{Key: string(bundle)}
	return &Controller{pernamespace.Keeper{
		Controller: Name,
		Namespaces: namespaces,
		Objects: coreinformers.NewFilteredConfigMapInformer(client, metav1.NamespaceAll, 0,
			cache.Indexers{cache.NamespaceIndex: cache.MetaNamespaceIndexFunc}, pernamespace.Named(ConfigMap)),
		Ensure: func(ctx context.Context, namespace string, current any) error {
			configMaps := client.CoreV1().ConfigMaps(namespace)
			if current == nil {
				_, err := configMaps.Create(ctx, &corev1.ConfigMap{
					ObjectMeta: metav1.ObjectMeta{Name: ConfigMap, Annotations: map[string]string{descriptionAnnotation: description}},
					Data:       data,
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

// Run works until ctx ends, and returns when nothing of the controller runs any more.
func (c *Controller) Run(ctx context.Context) error { return c.keeper.Run(ctx) }
