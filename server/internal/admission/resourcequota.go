package admission

import (
	"context"
	"io"
	"sync"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/labels"
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

	mu      sync.Mutex
	current *runningQuota // nil once the server has drained its requests
}

// runningQuota is a plugin with running workers.
type runningQuota struct {
	*resourcequota.QuotaAdmission
	requests sync.WaitGroup // those that are being validated
	replaced chan struct{}
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
	stop := make(chan struct{})
	plugin.SetDrainedNotification(stop)
	plugin.SetExternalKubeClientSet(p.client)
	plugin.SetExternalKubeInformerFactory(p.shared)
	// No initializer sets the configuration. It needs the drain notification.
	plugin.SetQuotaConfiguration(quota.Configuration(nil))
	if err := plugin.ValidateInitialization(); err != nil {
		close(stop)
		return err
	}
	running := &runningQuota{QuotaAdmission: plugin, replaced: make(chan struct{})}
	if old := p.replace(running); old != nil {
		close(old.replaced)
	}
	go func() {
		select {
		case <-running.replaced:
		case <-p.drained:
			p.replace(nil)
		}
		// A request whose worker has ended would wait ten seconds. The server does not count all
		// requests as it drains them: one that was canceled may still be here.
		running.requests.Wait()
		close(stop)
	}()
	return nil
}

// replace returns the former plugin.
func (p *resourceQuota) replace(running *runningQuota) *runningQuota {
	p.mu.Lock()
	defer p.mu.Unlock()
	old := p.current
	p.current = running
	return old
}

// begin returns the plugin for one request, which must call its requests.Done.
func (p *resourceQuota) begin() *runningQuota {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.current != nil {
		p.current.requests.Add(1)
	}
	return p.current
}

// unlimited reports whether nothing limits what is created in a namespace. The plugin would find
// the same, but its workers would start first, and most control planes have no quota.
func (p *resourceQuota) unlimited(namespace string) bool {
	quotas := p.shared.Core().V1().ResourceQuotas()
	if len(p.config.LimitedResources) > 0 || !quotas.Informer().HasSynced() {
		return false
	}
	found, err := quotas.Lister().ResourceQuotas(namespace).List(labels.Everything())
	return err == nil && len(found) == 0
}

// Validate implements admission.ValidationInterface.
func (p *resourceQuota) Validate(
	ctx context.Context, a admission.Attributes, o admission.ObjectInterfaces,
) error {
	if p.unlimited(a.GetNamespace()) {
		return nil
	}
	running := p.begin()
	if running == nil {
		return apierrors.NewServiceUnavailable("the server is shutting down")
	}
	defer running.requests.Done()
	return running.Validate(ctx, a, o)
}
