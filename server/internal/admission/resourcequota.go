package admission

import (
	"context"
	"io"
	"sync/atomic"

	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apiserver/pkg/admission"
	"k8s.io/apiserver/pkg/admission/plugin/resourcequota"
	resourcequotaapi "k8s.io/apiserver/pkg/admission/plugin/resourcequota/apis/resourcequota"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"

	"github.com/kinproc/kinproc/server/internal/admission/quota"
)

// resourceQuota (ResourceQuota) is the plugin of k8s.io/apiserver with this server's evaluators.
// The plugin can be replaced by a new one; see [Deferred.CatchUp].
type resourceQuota struct {
	config  *resourcequotaapi.Configuration
	drained <-chan struct{}
	client  kubernetes.Interface
	shared  informers.SharedInformerFactory

	current atomic.Pointer[runningQuota]
}

// runningQuota is a plugin and what ends its workers.
type runningQuota struct {
	*resourcequota.QuotaAdmission
	stop chan struct{}
}

// quotaWorkers is the number of quotas that are charged concurrently, as in kube-apiserver.
const quotaWorkers = 5

func newResourceQuota(config io.Reader) (admission.Interface, error) {
	loaded, err := resourcequota.LoadConfiguration(config)
	if err != nil {
		return nil, err
	}
	return &resourceQuota{config: loaded}, nil
}

// Handles implements admission.Interface.
func (p *resourceQuota) Handles(o admission.Operation) bool {
	return o == admission.Create || o == admission.Update
}

// SetDrainedNotification implements initializer.WantsDrainedNotification.
func (p *resourceQuota) SetDrainedNotification(stop <-chan struct{}) { p.drained = stop }

// SetExternalKubeClientSet implements initializer.WantsExternalKubeClientSet.
func (p *resourceQuota) SetExternalKubeClientSet(c kubernetes.Interface) { p.client = c }

// SetExternalKubeInformerFactory implements initializer.WantsExternalKubeInformerFactory.
func (p *resourceQuota) SetExternalKubeInformerFactory(f informers.SharedInformerFactory) {
	p.shared = f
	f.Core().V1().ResourceQuotas().Informer()
}

// ValidateInitialization implements admission.InitializationValidator.
func (p *resourceQuota) ValidateInitialization() error { return p.renew(context.Background()) }

func (p *resourceQuota) remembers() []schema.GroupKind { return []schema.GroupKind{quotaKind} }

// renew replaces the plugin by a new one.
func (p *resourceQuota) renew(context.Context) error {
	plugin, err := resourcequota.NewResourceQuota(p.config, quotaWorkers)
	if err != nil {
		return err
	}
	stop, ended := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(ended)
		select {
		case <-stop:
		case <-p.drained:
		}
	}()
	plugin.SetDrainedNotification(ended)
	plugin.SetExternalKubeClientSet(p.client)
	plugin.SetExternalKubeInformerFactory(p.shared)
	// No initializer sets the configuration. It needs the drain notification.
	plugin.SetQuotaConfiguration(quota.Configuration(nil))
	if err := plugin.ValidateInitialization(); err != nil {
		close(stop)
		return err
	}
	if old := p.current.Swap(&runningQuota{plugin, stop}); old != nil {
		close(old.stop)
	}
	return nil
}

// Validate implements admission.ValidationInterface.
func (p *resourceQuota) Validate(
	ctx context.Context, a admission.Attributes, o admission.ObjectInterfaces,
) error {
	return p.current.Load().Validate(ctx, a, o)
}
