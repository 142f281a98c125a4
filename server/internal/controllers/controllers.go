// Package controllers lists the controllers and starts the enabled ones. Each controller has its
// own package and can run alone.
package controllers

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	certificatesv1 "k8s.io/api/certificates/v1"
	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	utilruntime "k8s.io/apimachinery/pkg/util/runtime"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/metadata"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/tools/record"
	controllermetrics "k8s.io/component-base/metrics/prometheus/controllers"

	"github.com/kinproc/kinproc/server/internal/admission/quota"
	"github.com/kinproc/kinproc/server/internal/controllers/certificaterequests"
	"github.com/kinproc/kinproc/server/internal/controllers/clusterroleaggregation"
	"github.com/kinproc/kinproc/server/internal/controllers/garbagecollector"
	"github.com/kinproc/kinproc/server/internal/controllers/legacytokens"
	"github.com/kinproc/kinproc/server/internal/controllers/loop"
	"github.com/kinproc/kinproc/server/internal/controllers/namespaces"
	"github.com/kinproc/kinproc/server/internal/controllers/protection"
	"github.com/kinproc/kinproc/server/internal/controllers/resourcequotas"
	"github.com/kinproc/kinproc/server/internal/controllers/rootca"
	"github.com/kinproc/kinproc/server/internal/controllers/serviceaccounts"
	"github.com/kinproc/kinproc/server/internal/controllers/servicecidrs"
	"github.com/kinproc/kinproc/server/internal/controllers/tokensecrets"
	"github.com/kinproc/kinproc/server/internal/controllers/validatingadmissionpolicystatus"
)

// Dependencies are what the controllers need.
type Dependencies struct {
	// Config is an administrator's client configuration, for clients other than Client. Its user
	// agent makes kube-controller-manager the field manager.
	Config    *rest.Config
	Client    kubernetes.Interface
	Informers informers.SharedInformerFactory
	// Named returns an informer of the objects of a kind that have a certain name. Informers starts
	// it.
	Named func(example runtime.Object, name string) cache.SharedIndexInformer
	// CABundle is the PEM bundle that verifies the API server.
	CABundle []byte
	// CA signs the certificates that are requested of the signers of Kubernetes.
	CA certificaterequests.Authority
	// ServiceCIDRs are the blocks of the default ServiceCIDR, which the API server recreates when
	// it is deleted.
	ServiceCIDRs []string
	// Appeared calls appeared for each of the resources as soon as an object of it exists. It
	// returns when all have appeared or when ctx ends.
	Appeared func(ctx context.Context, resources []schema.GroupResource,
		appeared func(schema.GroupResource))
	// Recorder returns a recorder of the events of a component. [Start] sets it.
	Recorder func(component string) record.EventRecorder
	// Tokens issues the tokens that are stored in secrets.
	Tokens tokensecrets.Issuer
	// Charges are the requests that charge quotas.
	Charges *quota.Charges
	// Storage is where the objects are stored.
	Storage garbagecollector.Storage
	// BuiltIn returns the resource of a built-in kind, and whether it is namespaced.
	BuiltIn func(schema.GroupVersionKind) (name string, namespaced, ok bool)
}

// Runner is a controller. Run returns once ctx has ended and all goroutines of the controller have
// ended.
type Runner interface {
	Run(ctx context.Context) error
}

// Controller describes a control loop.
type Controller struct {
	// Name is the controller's name in the flag --controllers of kube-controller-manager.
	Name string
	// Purpose says what the control loop does.
	Purpose string

	alias        string // the name before Kubernetes 1.28
	offByDefault bool
	// workload is set for a controller that brings workloads to life. A test of another such
	// controller has its objects to itself, so they are off unless they are asked for.
	workload bool
	// after are the resources whose objects the controller is for. The controller is not made
	// before there is an object of one of them. If there are none, it is made at once.
	after []schema.GroupResource
	// new returns the controller. It asks for its informers, which are started before Run.
	new func(Dependencies) (Runner, error)
}

// All returns the control loops that there are.
func All() []Controller {
	return slices.Concat(cluster(), apps(), batch(), network(), nodes(), volumes())
}

// cluster returns the control loops that keep the cluster itself in order.
func cluster() []Controller {
	requests := []schema.GroupResource{certificatesv1.Resource("certificatesigningrequests")}
	return []Controller{
		{
			Name:    clusterroleaggregation.Name,
			Purpose: "fills in the rules of aggregated ClusterRoles",
			alias:   "clusterrole-aggregation",
			new: func(d Dependencies) (Runner, error) {
				return clusterroleaggregation.New(d.Client, d.Informers.Rbac().V1().ClusterRoles()), nil
			},
		},
		{
			Name:    serviceaccounts.Name,
			Purpose: `makes the ServiceAccount "default" of each namespace`,
			alias:   "serviceaccount",
			new: func(d Dependencies) (Runner, error) {
				return serviceaccounts.New(d.Client, d.Informers.Core().V1().Namespaces(),
					d.Named(&corev1.ServiceAccount{}, serviceaccounts.Account)), nil
			},
		},
		{
			Name:    rootca.Name,
			Purpose: `makes the ConfigMap "kube-root-ca.crt" of each namespace`,
			alias:   "root-ca-cert-publisher",
			new: func(d Dependencies) (Runner, error) {
				return rootca.New(d.Client, d.Informers.Core().V1().Namespaces(),
					d.Named(&corev1.ConfigMap{}, rootca.ConfigMap), d.CABundle), nil
			},
		},
		{
			Name:    namespaces.Name,
			Purpose: "deletes what is in a namespace that is deleted",
			alias:   "namespace",
			new: func(d Dependencies) (Runner, error) {
				client, err := metadata.NewForConfig(d.Config)
				if err != nil {
					return nil, err
				}
				return namespaces.New(d.Client, client, d.Informers.Core().V1().Namespaces()), nil
			},
		},
		{
			Name:    garbagecollector.Name,
			Purpose: "deletes objects whose owners are gone",
			alias:   "garbagecollector",
			new: func(d Dependencies) (Runner, error) {
				return garbagecollector.New(garbagecollector.Dependencies{
					Config: d.Config, Storage: d.Storage, BuiltIn: d.BuiltIn,
					Recorder: d.Recorder(garbagecollector.Name),
				})
			},
		},
		{
			Name:    servicecidrs.Name,
			Purpose: "keeps ServiceCIDRs while their addresses are in use, and sets their status",
			alias:   "servicecidr",
			new: func(d Dependencies) (Runner, error) {
				return servicecidrs.New(d.Client, d.Informers.Networking().V1().ServiceCIDRs(), d.ServiceCIDRs),
					nil
			},
		},
		{
			Name:    validatingadmissionpolicystatus.Name,
			Purpose: "checks the expressions of ValidatingAdmissionPolicies against types",
			alias:   "validatingadmissionpolicy-status",
			after:   []schema.GroupResource{admissionregistrationv1.Resource("validatingadmissionpolicies")},
			new: func(d Dependencies) (Runner, error) {
				return validatingadmissionpolicystatus.New(d.Client,
					d.Informers.Admissionregistration().V1().ValidatingAdmissionPolicies()), nil
			},
		},
		{
			Name:    certificaterequests.ApprovalName,
			Purpose: "approves the CertificateSigningRequests of kubelets",
			alias:   "csrapproving",
			after:   requests,
			new: func(d Dependencies) (Runner, error) {
				return certificaterequests.NewApproval(d.certificates()), nil
			},
		},
		{
			Name:    certificaterequests.SigningName,
			Purpose: "signs approved CertificateSigningRequests",
			alias:   "csrsigning",
			after:   requests,
			new: func(d Dependencies) (Runner, error) {
				return certificaterequests.NewSigning(d.certificates()), nil
			},
		},
		{
			Name:    certificaterequests.CleanupName,
			Purpose: "deletes old CertificateSigningRequests",
			alias:   "csrcleaner",
			after:   requests,
			new: func(d Dependencies) (Runner, error) {
				return certificaterequests.NewCleanup(d.certificates()), nil
			},
		},
		{
			Name:    protection.ClaimsName,
			Purpose: "keeps deleted PersistentVolumeClaims while pods use them",
			alias:   "pvc-protection",
			after:   []schema.GroupResource{corev1.Resource("persistentvolumeclaims")},
			new:     protected(protection.Claims),
		},
		{
			Name:    protection.VolumesName,
			Purpose: "keeps deleted PersistentVolumes while claims are bound to them",
			alias:   "pv-protection",
			after:   []schema.GroupResource{corev1.Resource("persistentvolumes")},
			new:     protected(protection.Volumes),
		},
		{
			Name:    protection.ClassesName,
			Purpose: "keeps deleted VolumeAttributesClasses while they are in use",
			alias:   "vac-protection",
			after:   []schema.GroupResource{storagev1.Resource("volumeattributesclasses")},
			new:     protected(protection.Classes),
		},
		{
			Name:    tokensecrets.Name,
			Purpose: "fills the token secrets of ServiceAccounts",
			alias:   "serviceaccount-token",
			after:   []schema.GroupResource{corev1.Resource("secrets")},
			new: func(d Dependencies) (Runner, error) {
				return tokensecrets.New(d.Client, d.Informers.Core().V1(), d.Tokens, d.CABundle), nil
			},
		},
		{
			Name:    legacytokens.Name,
			Purpose: "deletes token secrets that nobody has used for a year",
			alias:   "legacy-service-account-token-cleaner",
			after:   []schema.GroupResource{corev1.Resource("secrets")},
			new: func(d Dependencies) (Runner, error) {
				return legacytokens.New(legacytokens.Dependencies{
					Client: d.Client, Informers: d.Informers, Now: time.Now,
				}), nil
			},
		},
		{
			Name:    resourcequotas.Name,
			Purpose: "keeps the status of ResourceQuotas",
			alias:   "resourcequota",
			after:   []schema.GroupResource{corev1.Resource("resourcequotas")},
			new: func(d Dependencies) (Runner, error) {
				client, err := metadata.NewForConfig(d.Config)
				if err != nil {
					return nil, err
				}
				return resourcequotas.New(resourcequotas.Dependencies{
					Client: d.Client, Metadata: client, Informers: d.Informers, Charges: d.Charges,
				}), nil
			},
		},
	}
}

// as returns what a controller needs that records its events as a component.
func (d Dependencies) as(component string) loop.Dependencies {
	return loop.Dependencies{
		Client: d.Client, Informers: d.Informers, Recorder: d.Recorder(component),
	}
}

func (d Dependencies) certificates() certificaterequests.Dependencies {
	return certificaterequests.Dependencies{
		Client: d.Client, Informers: d.Informers, CA: d.CA,
	}
}

func protected[R Runner](new func(protection.Dependencies) R) func(Dependencies) (Runner, error) {
	return func(d Dependencies) (Runner, error) {
		client, err := metadata.NewForConfig(d.Config)
		if err != nil {
			return nil, err
		}
		return new(protection.Dependencies{
			Client:    d.Client,
			Metadata:  client,
			Informers: d.Informers,
		}), nil
	}
}

// Enabled returns the names of the controllers that spec enables, in the syntax of
// kube-controller-manager's --controllers flag: "*" stands for all controllers that are on by
// default, "name" enables a controller, "-name" disables it, and the first entry about a controller
// wins. In addition, "-*" disables all controllers, and an empty spec stands for "*" without the
// controllers of workloads.
func Enabled(spec []string) ([]string, error) {
	list := All()
	if len(spec) == 0 {
		spec = []string{"*"}
		list = slices.DeleteFunc(list, func(c Controller) bool { return c.workload })
	}
	words := map[string]bool{}
	for _, word := range spec {
		name, off := strings.CutPrefix(word, "-")
		if i := slices.IndexFunc(list, func(c Controller) bool {
			return c.Name == name || c.alias == name && name != "" // not all have an alias
		}); i >= 0 {
			name = list[i].Name
		} else if name != "*" {
			return nil, fmt.Errorf("unknown controller %q: must be one of %s",
				name, strings.Join(names(list), ", "))
		}
		if _, said := words[name]; !said {
			words[name] = !off
		}
	}
	var enabled []string
	for _, c := range list {
		on, said := words[c.Name]
		if !said {
			on = words["*"] && !c.offByDefault
		}
		if on {
			enabled = append(enabled, c.Name)
		}
	}
	return enabled, nil
}

func names(list []Controller) []string {
	var names []string
	for _, c := range list {
		names = append(names, c.Name)
	}
	return names
}

// Start starts the controllers that spec enables, each as soon as there is something for it to do,
// and the informers that they need. They stop when ctx ends. The returned function waits until they
// have stopped.
func Start(ctx context.Context, spec []string, d Dependencies) (wait func(), err error) {
	enabled, err := Enabled(spec)
	if err != nil {
		return nil, err
	}
	var atOnce, later []Controller
	for _, c := range All() {
		switch {
		case !slices.Contains(enabled, c.Name):
		case len(c.after) == 0:
			atOnce = append(atOnce, c)
		default:
			later = append(later, c)
		}
	}
	sent := &events{ctx: ctx, client: d.Client}
	d.Recorder = sent.recorder
	s := &starter{
		dependencies: d,
		metrics:      controllermetrics.NewControllerManagerMetrics("kube-controller-manager"),
	}
	controllermetrics.Register()
	for _, c := range later {
		s.metrics.ControllerStopped(c.Name)
	}
	if err := s.start(ctx, atOnce); err != nil {
		return nil, err
	}
	if len(later) > 0 {
		s.running.Go(func() { s.startLater(ctx, later) })
	}
	return func() {
		s.running.Wait()
		sent.stop()
	}, nil
}

// starter starts controllers.
type starter struct {
	dependencies Dependencies
	metrics      *controllermetrics.ControllerManagerMetrics // of the whole process
	running      sync.WaitGroup
}

func (s *starter) start(ctx context.Context, list []Controller) error {
	runners := map[string]Runner{}
	for _, c := range list {
		runner, err := c.new(s.dependencies)
		if err != nil {
			return fmt.Errorf("%s: %w", c.Name, err)
		}
		runners[c.Name] = runner
	}
	s.dependencies.Informers.StartWithContext(ctx)
	for name, r := range runners {
		s.metrics.ControllerStarted(name)
		s.running.Go(func() {
			defer s.metrics.ControllerStopped(name)
			if err := r.Run(ctx); err != nil {
				utilruntime.HandleErrorWithContext(ctx, err, "Controller failed", "controller", name)
			}
		})
	}
	return nil
}

// startLater starts each controller as soon as an object of one of its resources exists.
func (s *starter) startLater(ctx context.Context, list []Controller) {
	resources := sets.New[schema.GroupResource]()
	for _, c := range list {
		resources.Insert(c.after...)
	}
	s.dependencies.Appeared(ctx, resources.UnsortedList(), func(resource schema.GroupResource) {
		var ready []Controller
		list = slices.DeleteFunc(list, func(c Controller) bool {
			start := slices.Contains(c.after, resource)
			if start {
				ready = append(ready, c)
			}
			return start
		})
		if err := s.start(ctx, ready); err != nil {
			utilruntime.HandleErrorWithContext(ctx, err, "Starting controllers failed")
		}
	})
}
