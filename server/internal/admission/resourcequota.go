package admission

import (
	"io"

	"k8s.io/apiserver/pkg/admission"
	"k8s.io/apiserver/pkg/admission/plugin/resourcequota"
	"k8s.io/client-go/informers"

	"github.com/kinproc/kinproc/server/internal/admission/quota"
)

// resourceQuota (ResourceQuota) is the plugin of k8s.io/apiserver with the evaluators of this server.
type resourceQuota struct{ *resourcequota.QuotaAdmission }

// quotaWorkers is how many quotas are charged at a time, as in kube-apiserver.
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

// SetExternalKubeInformerFactory also sets the evaluators, as nothing else does: the drain notification, which they need, was set before.
func (p *resourceQuota) SetExternalKubeInformerFactory(f informers.SharedInformerFactory) {
	p.QuotaAdmission.SetExternalKubeInformerFactory(f)
	p.SetQuotaConfiguration(quota.Configuration(nil))
}
