package legacy

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	utilruntime "k8s.io/apimachinery/pkg/util/runtime"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/apimachinery/pkg/util/validation/field"
	genericregistry "k8s.io/apiserver/pkg/registry/generic/registry"
	"k8s.io/apiserver/pkg/util/dryrun"
	"k8s.io/client-go/kubernetes"
)

// ServiceAllocator reserves the cluster IPs and node ports that no two services may share.
// Reservations are durable, and also hold against other allocators that use the same etcd.
type ServiceAllocator interface {
	// Families returns the IP families of services in the cluster, the default family first.
	Families() []corev1.IPFamily
	// AllocateIP reserves ip for the service, or any free address of the family if ip is empty.
	// With dryRun, it returns the address without reserving it.
	AllocateIP(
		ctx context.Context, s *corev1.Service, family corev1.IPFamily, ip string, dryRun bool,
	) (string, error)
	// ReleaseIP releases ip if it is reserved for the service.
	ReleaseIP(ctx context.Context, s *corev1.Service, ip string) error
	// AllocateNodePorts calls take with a function that reserves a port, or any free port if it is
	// 0. It reserves all of them or, if take returns an error or with dryRun, none. It may call take
	// again, which has to start over.
	AllocateNodePorts(
		ctx context.Context, dryRun bool, take func(reserve func(port int32) (int32, error)) error,
	) error
	// ReleaseNodePorts releases ports.
	ReleaseNodePorts(ctx context.Context, ports ...int32) error
}

// cleanupTimeout limits cleanup that runs after the response, and therefore without the deadline of
// the request.
const cleanupTimeout = 10 * time.Second

// serviceStorage adds allocation to the store of services. Allocation precedes validation, which
// sees the allocated values.
type serviceStorage struct {
	allocator ServiceAllocator
	client    kubernetes.Interface
}

func (a serviceStorage) adjust(store *genericregistry.Store) {
	store.Decorator = a.complete
	store.BeginCreate = a.beginCreate
	store.BeginUpdate = a.beginUpdate
	store.AfterDelete = a.afterDelete
}

// complete runs on every object that is read.
func (a serviceStorage) complete(obj runtime.Object) {
	var families []corev1.IPFamily
	if a.allocator != nil {
		families = a.allocator.Families()
	}
	switch o := obj.(type) {
	case *corev1.Service:
		completeStored(o, families)
	case *corev1.ServiceList:
		for i := range o.Items {
			completeStored(&o.Items[i], families)
		}
	}
}

func (a serviceStorage) beginCreate(
	ctx context.Context, obj runtime.Object, options *metav1.CreateOptions,
) (genericregistry.FinishFunc, error) {
	s := obj.(*corev1.Service)
	syncClusterIPs(s, nil)
	return a.begin(ctx, s, nil, dryrun.IsDryRun(options.DryRun))
}

func (a serviceStorage) beginUpdate(
	ctx context.Context, obj, existing runtime.Object, options *metav1.UpdateOptions,
) (genericregistry.FinishFunc, error) {
	s, old := obj.(*corev1.Service), existing.(*corev1.Service)
	a.complete(old)
	adoptAllocated(s, old)
	syncClusterIPs(s, old)
	return a.begin(ctx, s, old, dryrun.IsDryRun(options.DryRun))
}

func (a serviceStorage) begin(
	ctx context.Context, s, old *corev1.Service, dryRun bool,
) (genericregistry.FinishFunc, error) {
	if a.allocator == nil {
		return nil, apierrors.NewServiceUnavailable("this server cannot allocate addresses for services")
	}
	if errs := chooseFamilies(s, old, a.allocator.Families()); len(errs) > 0 {
		return nil, invalidService(s, errs...)
	}
	r := &reservation{allocator: a.allocator, service: s, old: old, dryRun: dryRun}
	err := r.takeIPs(ctx)
	if err == nil {
		err = r.takePorts(ctx)
	}
	if err != nil {
		r.finish(ctx, false)
		return nil, err
	}
	return r.finish, nil
}

func (a serviceStorage) afterDelete(obj runtime.Object, options *metav1.DeleteOptions) {
	if options != nil && dryrun.IsDryRun(options.DryRun) || a.allocator == nil {
		return
	}
	ctx, cancel := context.WithTimeout(context.Background(), cleanupTimeout)
	defer cancel()
	s := obj.(*corev1.Service)
	a.complete(s)
	r := &reservation{
		allocator:  a.allocator,
		service:    s,
		spareIPs:   heldIPs(s),
		sparePorts: sets.List(heldPorts(s)),
	}
	r.finish(ctx, true)
	if a.client == nil {
		return
	}
	// A new service of the same name must not get the endpoints of the old one.
	err := a.client.CoreV1().Endpoints(s.Namespace).Delete(ctx, s.Name, metav1.DeleteOptions{})
	if err != nil && !apierrors.IsNotFound(err) {
		utilruntime.HandleErrorWithContext(ctx, err,
			"Failed to delete the endpoints of a deleted service", "namespace", s.Namespace, "name", s.Name)
	}
}

func heldIPs(s *corev1.Service) []string {
	if !hasClusterIP(s) || isHeadless(s) {
		return nil
	}
	return s.Spec.ClusterIPs
}

func heldPorts(s *corev1.Service) sets.Set[int32] {
	ports := sets.New[int32]()
	if hasNodePorts(s) {
		ports = heldNodePorts(s)
	}
	if hasHealthCheck(s) && s.Spec.HealthCheckNodePort != 0 {
		ports.Insert(s.Spec.HealthCheckNodePort)
	}
	return ports
}

// reservation records what a request allocates, which is released if the request fails, and what it
// gives up, which is released if the request succeeds.
type reservation struct {
	allocator    ServiceAllocator
	service, old *corev1.Service // old is nil for a new service
	dryRun       bool

	takenIPs, spareIPs     []string
	takenPorts, sparePorts []int32
}

// finish is the store's FinishFunc.
func (r *reservation) finish(ctx context.Context, success bool) {
	if r.dryRun {
		return
	}
	ips, ports := r.takenIPs, r.takenPorts
	if success {
		ips, ports = r.spareIPs, r.sparePorts
	}
	if len(ips) == 0 && len(ports) == 0 {
		return
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), cleanupTimeout)
	defer cancel()
	for _, ip := range ips {
		if err := r.allocator.ReleaseIP(ctx, r.service, ip); err != nil {
			utilruntime.HandleErrorWithContext(ctx, err, "Failed to release a cluster IP", "ip", ip)
		}
	}
	if len(ports) > 0 {
		if err := r.allocator.ReleaseNodePorts(ctx, ports...); err != nil {
			utilruntime.HandleErrorWithContext(ctx, err, "Failed to release node ports", "ports", ports)
		}
	}
}

func (r *reservation) takeIPs(ctx context.Context) error {
	spec := &r.service.Spec
	held := []string(nil)
	if r.old != nil {
		held = heldIPs(r.old)
	}
	if !hasClusterIP(r.service) {
		r.spareIPs = held
		return nil
	}
	if isHeadless(r.service) {
		return nil
	}
	first := 0
	if r.old != nil && hasClusterIP(r.old) {
		// The first address stays: validation refuses a change of it, and a change to or from
		// headless. A second address may be added or removed.
		if isHeadless(r.old) {
			return nil
		}
		first = len(r.old.Spec.IPFamilies)
		if len(spec.IPFamilies) < len(held) {
			r.spareIPs = held[len(spec.IPFamilies):]
		}
	}
	ips := slices.Clone(spec.ClusterIPs)
	for i := first; i < len(spec.IPFamilies); i++ {
		if i >= len(ips) {
			ips = append(ips, "")
		}
		wanted := ips[i]
		ip, err := r.allocator.AllocateIP(ctx, r.service, spec.IPFamilies[i], wanted, r.dryRun)
		switch {
		case err != nil && wanted != "":
			return invalidService(r.service, field.Invalid(field.NewPath("spec", "clusterIPs"),
				spec.ClusterIPs, fmt.Sprintf("failed to allocate IP %s: %v", wanted, err)))
		case err != nil:
			return apierrors.NewInternalError(fmt.Errorf("failed to allocate a cluster IP: %w", err))
		}
		r.takenIPs = append(r.takenIPs, ip)
		if wanted == "" {
			ips[i] = ip
		}
	}
	if len(ips) > 0 {
		spec.ClusterIP, spec.ClusterIPs = ips[0], ips
	}
	return nil
}

// takePorts reserves all ports at once, however many the service has.
func (r *reservation) takePorts(ctx context.Context) error {
	ports, health := r.service.Spec.Ports, r.service.Spec.HealthCheckNodePort
	var planned error
	plan := func(reserve func(int32) (int32, error)) error {
		r.service.Spec.Ports, r.service.Spec.HealthCheckNodePort = slices.Clone(ports), health
		r.takenPorts = nil
		planned = r.planPorts(func(port int32) (int32, error) {
			taken, err := reserve(port)
			if err == nil {
				r.takenPorts = append(r.takenPorts, taken)
			}
			return taken, err
		})
		return planned
	}
	// Most requests need no other ports than the service has.
	needed := false
	if err := plan(func(int32) (int32, error) {
		needed = true
		return 0, errors.New("the port is not reserved yet")
	}); !needed {
		return err
	}
	err := r.allocator.AllocateNodePorts(ctx, r.dryRun, plan)
	if err == nil {
		return nil
	}
	r.takenPorts = nil
	if planned == nil {
		return apierrors.NewInternalError(fmt.Errorf("failed to allocate node ports: %w", err))
	}
	return planned
}

// planPorts decides on the ports of the service. It calls reserve for those that it does not hold.
func (r *reservation) planPorts(reserve func(int32) (int32, error)) error {
	spec := &r.service.Spec
	held := sets.New[int32]()
	if r.old != nil {
		held = heldPorts(r.old)
	}
	used := sets.New[int32]()
	if hasNodePorts(r.service) {
		take := r.takeNodePorts
		if r.old != nil {
			take = r.changeNodePorts
		}
		if err := take(reserve, used); err != nil {
			return err
		}
	}
	if hasHealthCheck(r.service) {
		if r.old == nil || !hasHealthCheck(r.old) {
			port, err := takePort(reserve, spec.HealthCheckNodePort, used)
			if err != nil {
				return apierrors.NewInternalError(fmt.Errorf("failed to allocate a health check node port: %w",
					err))
			}
			spec.HealthCheckNodePort = port
			used.Insert(port)
		} else {
			used.Insert(r.old.Spec.HealthCheckNodePort)
		}
	}
	r.sparePorts = sets.List(held.Difference(used))
	return nil
}

// takeNodePorts reserves the node ports that a new service asks for, and allocates the others. A
// port number that is served over several protocols gets the same node port for all of them.
func (r *reservation) takeNodePorts(
	reserve func(int32) (int32, error), used sets.Set[int32],
) error {
	ports := r.service.Spec.Ports
	wanted, shared := map[int32]int32{}, map[int32]int32{} // by port number
	for _, p := range slices.Backward(ports) {
		if p.NodePort != 0 {
			wanted[p.Port] = p.NodePort
		}
	}
	for i := range ports {
		p := &ports[i]
		port, known := shared[p.Port]
		switch {
		case p.NodePort == 0 && !allocatesNodePorts(r.service):
			continue
		case known && (p.NodePort == 0 || p.NodePort == port):
			p.NodePort = port
			continue
		case !known:
			p.NodePort = wanted[p.Port]
		}
		if err := r.takeNodePort(reserve, i, used); err != nil {
			return err
		}
		if !known {
			shared[p.Port] = p.NodePort
		}
	}
	return nil
}

// changeNodePorts lets a service keep its node ports, and allocates a separate node port for every
// port that is added.
func (r *reservation) changeNodePorts(
	reserve func(int32) (int32, error), used sets.Set[int32],
) error {
	held := heldNodePorts(r.old)
	type portKey struct {
		protocol corev1.Protocol
		number   int32
	}
	seen := sets.New[portKey]()
	ports := r.service.Spec.Ports
	for i := range ports {
		p := &ports[i]
		if p.NodePort == 0 && !allocatesNodePorts(r.service) {
			continue
		}
		if p.NodePort == 0 || !held.Has(p.NodePort) && !used.Has(p.NodePort) {
			if err := r.takeNodePort(reserve, i, used); err != nil {
				return err
			}
		}
		used.Insert(p.NodePort)
		key := portKey{p.Protocol, p.NodePort}
		if seen.Has(key) {
			return fmt.Errorf("duplicate node port %d for protocol %s", p.NodePort, p.Protocol)
		}
		seen.Insert(key)
	}
	return nil
}

// takeNodePort reserves the node port of the i-th port, or any free port if it is 0.
func (r *reservation) takeNodePort(
	reserve func(int32) (int32, error), i int, used sets.Set[int32],
) error {
	p := &r.service.Spec.Ports[i]
	port, err := takePort(reserve, p.NodePort, used)
	switch {
	case err != nil && p.NodePort != 0:
		return invalidService(r.service,
			field.Invalid(field.NewPath("spec", "ports").Index(i).Child("nodePort"),
				p.NodePort, err.Error()))
	case err != nil:
		return apierrors.NewInternalError(fmt.Errorf("failed to allocate a node port: %w", err))
	}
	p.NodePort = port
	used.Insert(port)
	return nil
}

// takePort reserves port, or any free port if port is 0.
func takePort(
	reserve func(int32) (int32, error), port int32, used sets.Set[int32],
) (int32, error) {
	if port != 0 && used.Has(port) {
		return 0, errors.New("is specified twice")
	}
	return reserve(port)
}

func invalidService(s *corev1.Service, errs ...*field.Error) error {
	return apierrors.NewInvalid(schema.GroupKind{Kind: "Service"}, s.Name, errs)
}
