package admission

import (
	"context"
	"io"
	"maps"
	"slices"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	apiresource "k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apiserver/pkg/admission"
	"k8s.io/apiserver/pkg/admission/plugin/resourcequota"
	resourcequotaapi "k8s.io/apiserver/pkg/admission/plugin/resourcequota/apis/resourcequota"
	"k8s.io/apiserver/pkg/quota/v1/generic"
	"k8s.io/client-go/informers"
	coreinformers "k8s.io/client-go/informers/core/v1"

	"github.com/kinproc/kinproc/server/internal/admission/plugin"
	"github.com/kinproc/kinproc/server/internal/admission/quota"
)

// resourceQuota (ResourceQuota) refuses what exceeds the quotas of a namespace, and charges the
// quotas for the rest. It has the evaluator of k8s.io/apiserver with this server's evaluators of
// resources, but it reads the quotas live, so that a quota limits what is created right after it.
type resourceQuota struct {
	plugin.WantsClient
	plugin.Lists[corev1.ResourceQuota]
	config    *resourcequotaapi.Configuration
	drained   <-chan struct{}
	quotas    coreinformers.ResourceQuotaInformer
	counted   bool
	charges   *quota.Charges
	evaluator func() resourcequota.Evaluator // makes it for the first request that needs it

	requests sync.WaitGroup // those that are being validated
	mu       sync.RWMutex
	ended    bool                 // the server has drained its requests
	created  map[string]time.Time // when quotas were created lately, by namespace
}

// Quotas is an initializer of ResourceQuota.
type Quotas struct {
	// Counted says that a controller counts what is used. Otherwise, a quota limits nothing until
	// somebody writes its status, as with kube-apiserver alone.
	Counted bool
	// Charges tells the controller which requests have charged quotas.
	Charges *quota.Charges
}

// Initialize implements admission.PluginInitializer.
func (q Quotas) Initialize(plugin admission.Interface) {
	if p, ok := plugin.(*resourceQuota); ok {
		p.counted, p.charges = q.Counted, q.Charges
	}
}

const (
	// quotaWorkers is the number of namespaces that are checked concurrently, as in kube-apiserver.
	quotaWorkers = 5
	// quotaNew is how long after the creation of a quota the informer may not have it, at most.
	quotaNew = 30 * time.Second
)

func newResourceQuota(config io.Reader) (admission.Interface, error) {
	loaded, err := resourcequota.LoadConfiguration(config)
	if err != nil {
		return nil, err
	}
	return &resourceQuota{
		config: loaded, charges: &quota.Charges{}, created: map[string]time.Time{},
	}, nil
}

// Handles implements admission.Interface.
func (p *resourceQuota) Handles(o admission.Operation) bool {
	return o == admission.Create || o == admission.Update
}

// SetDrainedNotification implements initializer.WantsDrainedNotification.
func (p *resourceQuota) SetDrainedNotification(stop <-chan struct{}) { p.drained = stop }

// SetExternalKubeInformerFactory implements initializer.WantsExternalKubeInformerFactory.
func (p *resourceQuota) SetExternalKubeInformerFactory(f informers.SharedInformerFactory) {
	p.quotas = f.Core().V1().ResourceQuotas()
	p.quotas.Informer()
}

// ValidateInitialization implements admission.InitializationValidator.
func (p *resourceQuota) ValidateInitialization() error {
	if err := p.WantsClient.ValidateInitialization(); err != nil {
		return err
	}
	p.evaluator = sync.OnceValue(p.newEvaluator)
	return nil
}

func (p *resourceQuota) newEvaluator() resourcequota.Evaluator {
	resources, stop := quota.Configuration(nil), make(chan struct{})
	go func() {
		<-p.drained
		p.mu.Lock()
		p.ended = true
		p.mu.Unlock()
		// A request whose worker has ended would wait ten seconds. The server does not count all
		// requests as it drains them: one that was canceled may still be here.
		p.requests.Wait()
		close(stop)
	}()
	return resourcequota.NewQuotaEvaluator(p, resources.IgnoredResources(),
		generic.NewRegistry(resources.Evaluators()), nil, p.config, quotaWorkers, stop)
}

// begin reports whether a request can be validated, which must call requests.Done then.
func (p *resourceQuota) begin() bool {
	p.mu.RLock()
	defer p.mu.RUnlock()
	if !p.ended {
		p.requests.Add(1)
	}
	return !p.ended
}

// GetQuotas implements resourcequota.QuotaAccessor. If a controller counts what is used, the limits
// are those of the specification, even if the controller has yet to count. Until then, nothing else
// counts as used.
func (p *resourceQuota) GetQuotas(namespace string) ([]corev1.ResourceQuota, error) {
	ctx := context.Background() // a worker serves several requests at a time
	found, err := p.List(ctx, "resourcequotas/"+namespace, func() ([]corev1.ResourceQuota, error) {
		list, err := p.Client.CoreV1().ResourceQuotas(namespace).List(ctx, metav1.ListOptions{})
		if err != nil {
			return nil, err
		}
		return list.Items, nil
	})
	if err != nil {
		return nil, err
	}
	quotas := slices.Clone(found)
	if !p.counted {
		return quotas, nil
	}
	for i := range quotas {
		status := &quotas[i].Status
		status.Hard, status.Used = quotas[i].Spec.Hard, maps.Clone(status.Used)
		if status.Used == nil {
			status.Used = corev1.ResourceList{}
		}
		for name := range status.Hard {
			if _, ok := status.Used[name]; !ok {
				status.Used[name] = apiresource.Quantity{} // see UpdateQuotaStatus
			}
		}
	}
	return quotas, nil
}

// UpdateQuotaStatus implements resourcequota.QuotaAccessor. It leaves out the zeros of GetQuotas,
// which have no format: only the controller knows whether there are such resources.
func (p *resourceQuota) UpdateQuotaStatus(q *corev1.ResourceQuota) error {
	q = q.DeepCopy()
	maps.DeleteFunc(q.Status.Used, func(_ corev1.ResourceName, used apiresource.Quantity) bool {
		return used.Format == "" && used.IsZero()
	})
	_, err := p.Client.CoreV1().ResourceQuotas(q.Namespace).UpdateStatus(context.Background(), q,
		metav1.UpdateOptions{})
	return err
}

// unlimited reports whether nothing limits what is created in a namespace. Most have no quota, and
// the informer says so at no cost.
func (p *resourceQuota) unlimited(namespace string) bool {
	if len(p.config.LimitedResources) > 0 || !p.quotas.Informer().HasSynced() {
		return false
	}
	p.mu.RLock()
	created, ok := p.created[namespace]
	p.mu.RUnlock()
	if ok && time.Since(created) < quotaNew {
		return false
	}
	found, err := p.quotas.Lister().ResourceQuotas(namespace).List(labels.Everything())
	return err == nil && len(found) == 0
}

// creates remembers that a namespace is about to have a quota that the informer does not have yet.
func (p *resourceQuota) creates(namespace string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	now := time.Now()
	maps.DeleteFunc(p.created, func(_ string, created time.Time) bool {
		return now.Sub(created) >= quotaNew
	})
	p.created[namespace] = now
}

// Validate implements admission.ValidationInterface.
func (p *resourceQuota) Validate(
	ctx context.Context, a admission.Attributes, _ admission.ObjectInterfaces,
) error {
	namespace, creates := a.GetNamespace(), a.GetOperation() == admission.Create
	if namespace == "" || creates && plugin.Is(a, corev1.Resource("namespaces"), "") {
		return nil
	}
	if creates && plugin.Is(a, corev1.Resource("resourcequotas"), "") {
		// This comes last, because a quota does not limit itself.
		defer p.creates(namespace)
	}
	if p.unlimited(namespace) {
		return nil
	}
	if !p.begin() {
		return apierrors.NewServiceUnavailable("the server is shutting down")
	}
	defer p.requests.Done()
	end := p.charges.Begin(ctx, namespace)
	err := p.evaluator().Evaluate(a)
	if err != nil {
		end()
	}
	return err
}
