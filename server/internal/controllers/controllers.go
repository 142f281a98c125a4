// Package controllers lists the control loops and runs the enabled ones. Each has its own package
// and can run alone.
package controllers

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/runtime/schema"
	utilruntime "k8s.io/apimachinery/pkg/util/runtime"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/metadata"
	"k8s.io/client-go/rest"
	controllermetrics "k8s.io/component-base/metrics/prometheus/controllers"

	"github.com/kinproc/kinproc/chain/features"
	"github.com/kinproc/kinproc/server/internal/admission/quota"
	"github.com/kinproc/kinproc/server/internal/controllers/apps/daemonsets"
	"github.com/kinproc/kinproc/server/internal/controllers/apps/deployments"
	"github.com/kinproc/kinproc/server/internal/controllers/apps/replicasets"
	"github.com/kinproc/kinproc/server/internal/controllers/apps/statefulsets"
	"github.com/kinproc/kinproc/server/internal/controllers/autoscaling/horizontalpodautoscalers"
	"github.com/kinproc/kinproc/server/internal/controllers/batch/cronjobs"
	"github.com/kinproc/kinproc/server/internal/controllers/batch/jobs"
	"github.com/kinproc/kinproc/server/internal/controllers/batch/ttlafterfinished"
	"github.com/kinproc/kinproc/server/internal/controllers/cluster/certificaterequests"
	"github.com/kinproc/kinproc/server/internal/controllers/cluster/clusterroleaggregation"
	"github.com/kinproc/kinproc/server/internal/controllers/cluster/garbagecollector"
	"github.com/kinproc/kinproc/server/internal/controllers/cluster/legacytokens"
	"github.com/kinproc/kinproc/server/internal/controllers/cluster/namespaces"
	"github.com/kinproc/kinproc/server/internal/controllers/cluster/resourcequotas"
	"github.com/kinproc/kinproc/server/internal/controllers/cluster/rootca"
	"github.com/kinproc/kinproc/server/internal/controllers/cluster/serviceaccounts"
	"github.com/kinproc/kinproc/server/internal/controllers/cluster/storageversionmigrator"
	"github.com/kinproc/kinproc/server/internal/controllers/cluster/tokensecrets"
	"github.com/kinproc/kinproc/server/internal/controllers/cluster/trustbundles"
	"github.com/kinproc/kinproc/server/internal/controllers/cluster/validatingadmissionpolicystatus"
	"github.com/kinproc/kinproc/server/internal/controllers/loop"
	"github.com/kinproc/kinproc/server/internal/controllers/network/endpoints"
	"github.com/kinproc/kinproc/server/internal/controllers/network/endpointslicemirroring"
	"github.com/kinproc/kinproc/server/internal/controllers/network/endpointslices"
	"github.com/kinproc/kinproc/server/internal/controllers/network/gateways"
	"github.com/kinproc/kinproc/server/internal/controllers/network/ingresses"
	"github.com/kinproc/kinproc/server/internal/controllers/network/loadbalancers"
	"github.com/kinproc/kinproc/server/internal/controllers/network/servicecidrs"
	"github.com/kinproc/kinproc/server/internal/controllers/nodes/nodelifecycle"
	"github.com/kinproc/kinproc/server/internal/controllers/nodes/nodettl"
	"github.com/kinproc/kinproc/server/internal/controllers/nodes/podgc"
	"github.com/kinproc/kinproc/server/internal/controllers/nodes/scheduler"
	"github.com/kinproc/kinproc/server/internal/controllers/nodes/tainteviction"
	"github.com/kinproc/kinproc/server/internal/controllers/policy/disruption"
	"github.com/kinproc/kinproc/server/internal/controllers/volumes/devicetainteviction"
	"github.com/kinproc/kinproc/server/internal/controllers/volumes/ephemeralvolumes"
	"github.com/kinproc/kinproc/server/internal/controllers/volumes/protection"
	"github.com/kinproc/kinproc/server/internal/controllers/volumes/resourceclaims"
	"github.com/kinproc/kinproc/server/internal/controllers/volumes/volumebinding"
	"github.com/kinproc/kinproc/server/internal/nearest"
	"github.com/kinproc/kinproc/server/internal/requests/loopback"
)

// Dependencies are what the control loops need.
type Dependencies struct {
	// Dependencies are those that all loops have. [Start] sets Metadata and NewRecorder.
	loop.Dependencies
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
	// Tokens issues the tokens that are stored in secrets.
	Tokens tokensecrets.Issuer
	// LoadBalancers is where the addresses of load balancers come from.
	LoadBalancers loadbalancers.Range
	// MakesStorageClass is true if a default storage class is made when a claim needs one.
	MakesStorageClass bool
	// Charges are the requests that charge quotas.
	Charges *quota.Charges
	// Storage is where the objects are stored.
	Storage garbagecollector.Storage
	// BuiltIn returns the resource of a built-in kind, and whether it is namespaced.
	BuiltIn func(schema.GroupVersionKind) (name string, namespaced, ok bool)
}

// All returns the control loops that there are.
func All() []loop.Loop { return loops(Dependencies{}) }

func loops(d Dependencies) []loop.Loop {
	return []loop.Loop{
		// the cluster itself
		clusterroleaggregation.Loop(),
		serviceaccounts.Loop(),
		rootca.Loop(d.CABundle),
		trustbundles.Loop(d.CABundle),
		namespaces.Loop(),
		garbagecollector.Loop(d.Storage, d.BuiltIn),
		validatingadmissionpolicystatus.Loop(),
		certificaterequests.Approval(),
		certificaterequests.Signing(d.CA),
		certificaterequests.Cleanup(),
		certificaterequests.PodCleanup(),
		tokensecrets.Loop(d.Tokens, d.CABundle),
		legacytokens.Loop(time.Now),
		resourcequotas.Loop(d.Charges),
		storageversionmigrator.Loop(),
		// apps
		replicasets.Loop(),
		replicasets.ReplicationControllers(),
		deployments.Loop(),
		statefulsets.Loop(),
		daemonsets.Loop(),
		// batch
		jobs.Loop(),
		ttlafterfinished.Loop(),
		cronjobs.Loop(),
		// autoscaling
		horizontalpodautoscalers.Loop(),
		// policy
		disruption.Loop(),
		// network
		servicecidrs.Loop(d.ServiceCIDRs),
		endpointslices.Loop(),
		endpoints.Loop(),
		endpointslicemirroring.Loop(),
		loadbalancers.Loop(d.LoadBalancers),
		ingresses.Loop(d.LoadBalancers.Shared()),
		gateways.Loop(d.LoadBalancers.Shared()),
		// nodes and their pods
		scheduler.Loop(scheduler.Defaults()),
		nodelifecycle.Loop(),
		nodettl.Loop(),
		tainteviction.Loop(),
		podgc.Loop(),
		// volumes and devices
		protection.Claims(),
		protection.Volumes(),
		protection.Classes(),
		volumebinding.Loop(d.MakesStorageClass),
		ephemeralvolumes.Loop(),
		resourceclaims.Loop(),
		devicetainteviction.Loop(),
	}
}

// Enabled returns the names of the controllers that run: those that spec selects, unless their
// feature gate is off.
func Enabled(spec []string) ([]string, error) {
	selected, err := Selected(spec)
	for _, l := range All() {
		if l.Gate != "" && !features.Enabled(l.Gate) {
			selected = slices.DeleteFunc(selected, func(name string) bool { return name == l.Name })
		}
	}
	return selected, err
}

// Selected returns the names of the controllers that spec selects, in the syntax of
// kube-controller-manager's --controllers flag: "*" stands for all controllers, "name" enables a
// controller, "-name" disables it, and the first entry about a controller wins. In addition, "-*"
// disables all controllers, and an empty spec stands for "*" without the controllers of workloads.
func Selected(spec []string) ([]string, error) {
	list := All()
	if len(spec) == 0 {
		spec = []string{"*"}
		list = slices.DeleteFunc(list, func(l loop.Loop) bool { return l.Workload })
	}
	words := map[string]bool{}
	for _, word := range spec {
		name, off := strings.CutPrefix(word, "-")
		if i := slices.IndexFunc(list, func(l loop.Loop) bool {
			return l.Name == name || l.Alias == name && name != "" // not all have an alias
		}); i >= 0 {
			name = list[i].Name
		} else if name != "*" {
			return nil, unknown(name)
		}
		if _, said := words[name]; !said {
			words[name] = !off
		}
	}
	var selected []string
	for _, l := range list {
		on, said := words[l.Name]
		if on || !said && words["*"] {
			selected = append(selected, l.Name)
		}
	}
	return selected, nil
}

// unknown returns the error about a name that no controller has.
func unknown(name string) error {
	var names []string
	for _, l := range All() {
		names = append(names, l.Name)
		if l.Alias != "" {
			names = append(names, l.Alias)
		}
	}
	hint := nearest.Ask(name, names)
	if hint == "" {
		hint = "kinproc start --help lists all"
	}
	return fmt.Errorf("unknown controller %q; %s", name, hint)
}

// Start starts the controllers that spec enables, each as soon as there is something for it to do,
// and the informers that they need. They stop when ctx ends. The returned function waits until they
// have stopped.
func Start(ctx context.Context, spec []string, d Dependencies) (wait func(), err error) {
	enabled, err := Enabled(spec)
	if err != nil {
		return nil, err
	}
	var atOnce, later []loop.Loop
	for _, l := range loops(d) {
		switch {
		case l.Idle || !slices.Contains(enabled, l.Name):
		case len(l.After) == 0:
			atOnce = append(atOnce, l)
		default:
			later = append(later, l)
		}
	}
	if d.Metadata, err = metadata.NewForConfig(d.Config); err != nil {
		return nil, err
	}
	sent := &events{ctx: ctx, client: d.Client}
	d.NewRecorder = sent.recorder
	s := &starter{
		dependencies: d.Dependencies, appeared: d.Appeared,
		metrics: controllermetrics.NewControllerManagerMetrics("kube-controller-manager"),
	}
	controllermetrics.Register()
	for _, l := range later {
		s.metrics.ControllerStopped(l.Name)
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

// starter starts control loops.
type starter struct {
	dependencies loop.Dependencies
	appeared     func(context.Context, []schema.GroupResource, func(schema.GroupResource))
	metrics      *controllermetrics.ControllerManagerMetrics // of the whole process
	running      sync.WaitGroup
}

func (s *starter) start(ctx context.Context, list []loop.Loop) error {
	controllers := map[string]*loop.Controller{}
	for _, l := range list {
		d, err := dependenciesOf(l, s.dependencies)
		if err == nil {
			controllers[l.Name], err = l.New(d)
		}
		if err != nil {
			return fmt.Errorf("%s: %w", l.Name, err)
		}
	}
	for _, l := range list {
		ctx := ctx
		if l.UserAgent == "" { // otherwise, that names the loop
			ctx = loopback.Caller(ctx, l.Name)
		}
		s.metrics.ControllerStarted(l.Name)
		s.running.Go(func() {
			defer s.metrics.ControllerStopped(l.Name)
			if err := controllers[l.Name].Run(ctx); err != nil {
				utilruntime.HandleErrorWithContext(ctx, err, "Controller failed", "controller", l.Name)
			}
		})
	}
	return nil
}

// dependenciesOf returns the dependencies of a loop, whose requests may name it.
func dependenciesOf(l loop.Loop, d loop.Dependencies) (loop.Dependencies, error) {
	if l.UserAgent == "" {
		return d, nil
	}
	_, version, _ := strings.Cut(d.Config.UserAgent, "/")
	d.Config = rest.CopyConfig(d.Config)
	d.Config.UserAgent = fmt.Sprintf(l.UserAgent, version)
	var err error
	if d.Client, err = kubernetes.NewForConfig(d.Config); err == nil {
		d.Metadata, err = metadata.NewForConfig(d.Config)
	}
	return d, err
}

// startLater starts each loop as soon as an object of one of its resources exists.
func (s *starter) startLater(ctx context.Context, list []loop.Loop) {
	resources := sets.New[schema.GroupResource]()
	for _, l := range list {
		resources.Insert(l.After...)
	}
	s.appeared(ctx, resources.UnsortedList(), func(resource schema.GroupResource) {
		var ready []loop.Loop
		list = slices.DeleteFunc(list, func(l loop.Loop) bool {
			start := slices.Contains(l.After, resource)
			if start {
				ready = append(ready, l)
			}
			return start
		})
		if err := s.start(ctx, ready); err != nil {
			utilruntime.HandleErrorWithContext(ctx, err, "Starting controllers failed")
		}
	})
}
