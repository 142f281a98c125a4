package admission

import (
	"io"

	"k8s.io/apiserver/pkg/admission"
	"k8s.io/apiserver/pkg/admission/plugin/resourcequota"
	"k8s.io/client-go/informers"

	"github.com/kinproc/kinproc/server/internal/admission/quota"
)

// resourceQuota (ResourceQuota) is the plugin of k8s.io/apiserver with this server's evaluators.
type resourceQuota struct{ *resourcequota.QuotaAdmission }

// quotaWorkers is the number of quotas that are charged concurrently, as in kube-apiserver.
const quotaWorkers = 5

func newResourceQuota(config io.Reader) (admission.Interface, error) {
	loaded, err := resourcequota.LoadConfiguration(config)
	if err != nil {
		return nil, err
	}
	p, err := resourcequota.NewResourceQuota(loaded, quotaWorkers)
	if err != nil {
		return nil, err
	}
	return &resourceQuota{p}, nil
}

// SetExternalKubeInformerFactory also sets the quota configuration, which no initializer does. The
// configuration needs the drain notification, which has already been set.
func (p *resourceQuota) SetExternalKubeInformerFactory(f informers.SharedInformerFactory) {
	p.QuotaAdmission.SetExternalKubeInformerFactory(f)
	p.SetQuotaConfiguration(quota.Configuration(nil))
}
