// Package controllers lists the controllers and starts the enabled ones. Each controller has its
// own package and can run alone.
package controllers

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	utilruntime "k8s.io/apimachinery/pkg/util/runtime"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/metadata"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/cache"

	"github.com/kinproc/kinproc/server/internal/controllers/certificaterequests"
	"github.com/kinproc/kinproc/server/internal/controllers/clusterroleaggregation"
	"github.com/kinproc/kinproc/server/internal/controllers/garbagecollector"
	"github.com/kinproc/kinproc/server/internal/controllers/namespaces"
	"github.com/kinproc/kinproc/server/internal/controllers/protection"
	"github.com/kinproc/kinproc/server/internal/controllers/rootca"
	"github.com/kinproc/kinproc/server/internal/controllers/serviceaccounts"
	"github.com/kinproc/kinproc/server/internal/controllers/servicecidrs"
	"github.com/kinproc/kinproc/server/internal/controllers/validatingadmissionpolicystatus"
)

// Dependencies are what the controllers need.
type Dependencies struct {
	// Config is an administrator's client configuration, for clients other than Client.
	Config    *rest.Config
	Client    kubernetes.Interface
	Informers informers.SharedInformerFactory
	// Named returns an informer of the objects of a kind that have a certain name.
	Named func(example runtime.Object, name string) cache.SharedIndexInformer
	// CABundle is the PEM bundle that verifies the API server.
	CABundle []byte
	// CA signs the certificates that are requested of the signers of Kubernetes.
	CA certificaterequests.Authority
	// ServiceCIDRs are the blocks of the default ServiceCIDR, which the API server recreates when
	// it is deleted.
	ServiceCIDRs []string
	// Appeared waits until an object of the resource exists. Controllers that have nothing to do
	// before that call it. If nil, there may be objects from the start.
	Appeared func(ctx context.Context, resource schema.GroupResource) error
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
	new          func(Dependencies) (Runner, error)
}

// All returns the control loops that there are.
func All() []Controller {
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
			new: func(d Dependencies) (Runner, error) {
				return validatingadmissionpolicystatus.New(d.Client,
					d.Informers.Admissionregistration().V1().ValidatingAdmissionPolicies()), nil
			},
		},
		{
			Name:    certificaterequests.ApprovalName,
			Purpose: "approves the CertificateSigningRequests of kubelets",
			alias:   "csrapproving",
			new: func(d Dependencies) (Runner, error) {
				return certificaterequests.NewApproval(d.certificates()), nil
			},
		},
		{
			Name:    certificaterequests.SigningName,
			Purpose: "signs approved CertificateSigningRequests",
			alias:   "csrsigning",
			new: func(d Dependencies) (Runner, error) {
				return certificaterequests.NewSigning(d.certificates()), nil
			},
		},
		{
			Name:    certificaterequests.CleanupName,
			Purpose: "deletes old CertificateSigningRequests",
			alias:   "csrcleaner",
			new: func(d Dependencies) (Runner, error) {
				return certificaterequests.NewCleanup(d.certificates()), nil
			},
		},
		{
			Name:    protection.ClaimsName,
			Purpose: "keeps deleted PersistentVolumeClaims while pods use them",
			alias:   "pvc-protection",
			new:     protected(protection.Claims),
		},
		{
			Name:    protection.VolumesName,
			Purpose: "keeps deleted PersistentVolumes while claims are bound to them",
			alias:   "pv-protection",
			new:     protected(protection.Volumes),
		},
		{
			Name:    protection.ClassesName,
			Purpose: "keeps deleted VolumeAttributesClasses while they are in use",
			alias:   "vac-protection",
			new:     protected(protection.Classes),
		},
	}
}

func (d Dependencies) certificates() certificaterequests.Dependencies {
	return certificaterequests.Dependencies{
		Client: d.Client, Informers: d.Informers, Appeared: d.Appeared, CA: d.CA,
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
			Appeared:  d.Appeared,
		}), nil
	}
}

// Enabled returns the names of the controllers that spec enables, in the syntax of
// kube-controller-manager's --controllers flag: "*" stands for all controllers that are on by
// default, "name" enables a controller, "-name" disables it, and the first entry about a controller
// wins. In addition, "-*" disables all controllers, and an empty spec stands for "*".
func Enabled(spec []string) ([]string, error) {
	if len(spec) == 0 {
		spec = []string{"*"}
	}
	list := All()
	words := map[string]bool{}
	for _, word := range spec {
		name, off := strings.CutPrefix(word, "-")
		if i := slices.IndexFunc(list, func(c Controller) bool {
			return c.Name == name || c.alias == name
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

// Start starts the controllers that spec enables and the informers that they need. They stop when
// ctx ends. The returned function waits until they have stopped.
func Start(ctx context.Context, spec []string, d Dependencies) (wait func(), err error) {
	enabled, err := Enabled(spec)
	if err != nil {
		return nil, err
	}
	runners := map[string]Runner{}
	for _, c := range All() {
		if !slices.Contains(enabled, c.Name) {
			continue
		}
		if runners[c.Name], err = c.new(d); err != nil {
			return nil, fmt.Errorf("%s: %w", c.Name, err)
		}
	}
	d.Informers.StartWithContext(ctx)
	var running sync.WaitGroup
	for name, r := range runners {
		running.Go(func() {
			if err := r.Run(ctx); err != nil {
				utilruntime.HandleErrorWithContext(ctx, err, "Controller failed", "controller", name)
			}
		})
	}
	return running.Wait, nil
}
