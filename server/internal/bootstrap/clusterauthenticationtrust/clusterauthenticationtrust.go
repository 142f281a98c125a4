package clusterauthenticationtrust

import (
	"context"
	"fmt"
	"maps"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/cache"

	"github.com/kinproc/kinproc/server/internal/controllers/loop"
)

// ConfigMap is the name of the config map in the namespace kube-system.
const ConfigMap = "extension-apiserver-authentication"

// Controller keeps the config map up to date.
type Controller struct {
	client     kubernetes.Interface
	configMaps cache.SharedIndexInformer
	trust      Trust
	shared     bool
	queue      *loop.Queue
}

// New returns a controller, which needs configMaps, an informer of the config map. If shared is
// true, servers with other certificate authorities may use the same etcd, and what they trust stays
// in the config map. Otherwise it is removed.
func New(
	client kubernetes.Interface, configMaps cache.SharedIndexInformer, trust Trust, shared bool,
) *Controller {
	return &Controller{
		client:     client,
		configMaps: configMaps,
		trust:      trust,
		shared:     shared,
		queue:      loop.New("cluster-authentication-trust-controller"),
	}
}

// Enqueue implements dynamiccertificates.Listener. It is called when the certificate authorities
// may have changed.
func (c *Controller) Enqueue() { c.queue.Enqueue(ConfigMap) }

// Run keeps the config map up to date until ctx ends. It returns when all goroutines of the
// controller have ended. The certificate authorities' files are watched by their providers, which
// the caller must run.
func (c *Controller) Run(ctx context.Context) error {
	handler, err := c.configMaps.AddEventHandler(cache.ResourceEventHandlerFuncs{
		AddFunc:    func(any) { c.Enqueue() },
		UpdateFunc: func(_, _ any) { c.Enqueue() },
		DeleteFunc: func(any) { c.Enqueue() },
	})
	if err != nil {
		return fmt.Errorf("config map %s: %w", ConfigMap, err)
	}
	c.trust.addListener(c)
	c.Enqueue() // a config map that is deleted before the informer lists causes no event
	return c.queue.Run(ctx, 1, func(ctx context.Context, _ string) (time.Duration, error) {
		return 0, c.Ensure(ctx)
	}, handler.HasSyncedChecker())
}

// Ensure brings the config map up to date once. It does not write a config map that is already
// correct.
func (c *Controller) Ensure(ctx context.Context) error {
	ours, err := c.trust.data()
	if err != nil {
		return err
	}
	configMaps := c.client.CoreV1().ConfigMaps(metav1.NamespaceSystem)
	current, err := configMaps.Get(ctx, ConfigMap, metav1.GetOptions{})
	if apierrors.IsNotFound(err) {
		return c.create(ctx, ours)
	}
	if err != nil {
		return fmt.Errorf("config map %s: %w", ConfigMap, err)
	}
	wanted := ours
	if c.shared {
		wanted = union(ours, current.Data)
	}
	if maps.Equal(current.Data, wanted) {
		return nil
	}
	current.Data = wanted
	if _, err := configMaps.Update(ctx, current, metav1.UpdateOptions{}); err != nil {
		return fmt.Errorf("config map %s: %w", ConfigMap, err)
	}
	return nil
}

// ConfigMap returns the config map for what is currently trusted.
func (t Trust) ConfigMap() (*corev1.ConfigMap, error) {
	data, err := t.data()
	return newConfigMap(data), err
}

func newConfigMap(data map[string]string) *corev1.ConfigMap {
	return &corev1.ConfigMap{
		ObjectMeta: metav1.ObjectMeta{Namespace: metav1.NamespaceSystem, Name: ConfigMap},
		Data:       data,
	}
}

func (c *Controller) create(ctx context.Context, data map[string]string) error {
	configMap := newConfigMap(data)
	create := func() error {
		_, err := c.client.CoreV1().ConfigMaps(metav1.NamespaceSystem).Create(ctx, configMap,
			metav1.CreateOptions{})
		return err
	}
	err := create()
	if apierrors.IsNotFound(err) {
		// The namespace does not exist yet, as in a new etcd.
		ns := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: metav1.NamespaceSystem}}
		if _, err = c.client.CoreV1().Namespaces().Create(ctx, ns, metav1.CreateOptions{}); err == nil ||
			apierrors.IsAlreadyExists(err) {
			err = create()
		}
	}
	if err != nil {
		return fmt.Errorf("config map %s: %w", ConfigMap, err)
	}
	return nil
}
