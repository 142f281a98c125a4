package allocation

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"strings"
	"sync"

	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	utilnet "k8s.io/apimachinery/pkg/util/net"
	"k8s.io/apiserver/pkg/registry/generic"
	"k8s.io/apiserver/pkg/storage"
	"k8s.io/apiserver/pkg/storage/storagebackend/factory"
)

// The defaults are the same as in kube-apiserver.
const (
	DefaultServiceCIDR   = "10.0.0.0/24"
	DefaultFirstNodePort = 30000
	DefaultLastNodePort  = 32767
)

// Options are the ranges to allocate from.
type Options struct {
	// CIDRs are the blocks of the default ServiceCIDR: one block, or one of each IP family with the
	// default family first. If empty, it is DefaultServiceCIDR.
	CIDRs []string
	// FirstNodePort and LastNodePort are the inclusive range of node ports. If both are 0, it is
	// kube-apiserver's default range.
	FirstNodePort, LastNodePort int32
	// ReadOnly is true if nothing will be allocated. The default ServiceCIDR need not exist then.
	ReadOnly bool
}

// ParseOptions parses ranges in the format of kube-apiserver's flags: CIDRs separated by commas,
// and ports as first-last or first+distance. Empty strings stand for the defaults.
func ParseOptions(clusterIPRange, nodePortRange string) (Options, error) {
	var o Options
	for cidr := range strings.SplitSeq(clusterIPRange, ",") {
		if cidr = strings.TrimSpace(cidr); cidr != "" {
			o.CIDRs = append(o.CIDRs, cidr)
		}
	}
	if nodePortRange != "" {
		ports, err := utilnet.ParsePortRange(nodePortRange)
		if err != nil {
			return o, fmt.Errorf("%q is not a range of ports from 1 to 65535, such as %d-%d", nodePortRange,
				DefaultFirstNodePort, DefaultLastNodePort)
		}
		o.FirstNodePort, o.LastNodePort = int32(ports.Base), int32(ports.Base+ports.Size-1)
	}
	return o, nil
}

// ErrTaken means that an address or a port is already allocated.
var ErrTaken = errors.New("is already allocated")

// Allocator allocates cluster IPs and node ports to services. Several allocators may share an etcd.
type Allocator struct {
	ranges
	store *stores
}

// ranges are the validated ranges to allocate from.
type ranges struct {
	cidrs    []string
	families []corev1.IPFamily
	ports    portRange
}

// stores contains the storage that the allocator reads and writes.
type stores struct {
	addresses, cidrs, ranges, services storage.Interface

	destroy []factory.DestroyFunc

	mu sync.Mutex
	// lastRange is the bitmap as it was last seen. It saves the read before a write if no other
	// server writes.
	lastRange *corev1.RangeAllocation
}

// New returns an allocator that uses the storage from getter. It creates the default ServiceCIDR if
// that does not exist.
func New(
	ctx context.Context, options Options, getter generic.RESTOptionsGetter,
) (*Allocator, error) {
	r, err := options.ranges()
	if err != nil {
		return nil, err
	}
	store, err := openStores(getter)
	if err != nil {
		return nil, err
	}
	a := &Allocator{ranges: *r, store: store}
	if options.ReadOnly {
		return a, nil
	}
	if err := a.EnsureServiceCIDR(ctx); err != nil {
		a.Close()
		return nil, err
	}
	return a, nil
}

// Validate returns an error if an allocator cannot be created with the options.
func (o Options) Validate() error {
	_, err := o.ranges()
	return err
}

func (o Options) ranges() (*ranges, error) {
	if len(o.CIDRs) == 0 {
		o.CIDRs = []string{DefaultServiceCIDR}
	}
	if o.FirstNodePort == 0 && o.LastNodePort == 0 {
		o.FirstNodePort, o.LastNodePort = DefaultFirstNodePort, DefaultLastNodePort
	}
	a := &ranges{cidrs: o.CIDRs, ports: portRange{o.FirstNodePort, o.LastNodePort}}
	if a.ports.first < 1 || a.ports.last > 65535 || a.ports.first > a.ports.last {
		return nil, fmt.Errorf("%s is not a range of ports from 1 to 65535", a.ports)
	}
	for _, cidr := range o.CIDRs {
		block, err := parseBlock(cidr)
		if err != nil {
			return nil, fmt.Errorf("%q: %w", cidr, err)
		}
		for _, f := range a.families {
			if f == block.family() {
				return nil, fmt.Errorf("%q: more than one range of %s", strings.Join(o.CIDRs, ","), f)
			}
		}
		a.families = append(a.families, block.family())
	}
	return a, nil
}

func openStores(getter generic.RESTOptionsGetter) (*stores, error) {
	s := &stores{}
	for _, open := range []struct {
		into     *storage.Interface
		resource schema.GroupResource
		path     string
		obj      func() runtime.Object
		list     func() runtime.Object
	}{
		{&s.addresses, networkingv1.Resource("ipaddresses"), addressesPath,
			func() runtime.Object {
				return &networkingv1.IPAddress{}
			}, func() runtime.Object { return &networkingv1.IPAddressList{} }},
		{&s.cidrs, networkingv1.Resource("servicecidrs"), cidrsPath,
			func() runtime.Object {
				return &networkingv1.ServiceCIDR{}
			}, func() runtime.Object { return &networkingv1.ServiceCIDRList{} }},
		{&s.ranges, corev1.Resource("servicenodeportallocations"), rangesPath,
			func() runtime.Object { return &corev1.RangeAllocation{} }, nil},
		{&s.services, corev1.Resource("services"), servicesPath,
			func() runtime.Object {
				return &corev1.Service{}
			}, func() runtime.Object { return &corev1.ServiceList{} }},
	} {
		options, err := getter.GetRESTOptions(open.resource, open.obj())
		if err != nil {
			s.close()
			return nil, fmt.Errorf("storage of %s: %w", open.resource, err)
		}
		store, destroy, err := options.Decorator(options.StorageConfig, open.path, objectName, open.obj,
			open.list, attributes, nil, nil)
		if err != nil {
			s.close()
			return nil, fmt.Errorf("storage of %s: %w", open.resource, err)
		}
		*open.into = store
		s.destroy = append(s.destroy, destroy)
	}
	return s, nil
}

// Close releases the storage.
func (a *Allocator) Close() { a.store.close() }

func (s *stores) close() {
	for _, destroy := range s.destroy {
		destroy()
	}
}

// Families returns the IP families of the cluster's services, the default family first.
func (a *Allocator) Families() []corev1.IPFamily { return a.families }

// FirstIP returns the first address of the default ServiceCIDR. It is the cluster IP of the service
// default/kubernetes.
func (a *Allocator) FirstIP() netip.Addr {
	block, err := parseBlock(a.cidrs[0])
	if err != nil {
		return netip.Addr{} // impossible: New has parsed it
	}
	return block.first
}

// CIDRs returns the blocks of the default ServiceCIDR.
func (a *Allocator) CIDRs() []string { return a.cidrs }

func objectName(obj runtime.Object) (string, error) {
	m, err := meta.Accessor(obj)
	if err != nil {
		return "", err
	}
	return m.GetName(), nil
}

func attributes(obj runtime.Object) (labels.Set, fields.Set, error) {
	m, err := meta.Accessor(obj)
	if err != nil {
		return nil, nil, err
	}
	return m.GetLabels(), fields.Set{"metadata.name": m.GetName()}, nil
}

func everything(ctx context.Context, s storage.Interface, path string, list runtime.Object) error {
	return s.GetList(ctx, path,
		storage.ListOptions{Predicate: storage.Everything, Recursive: true}, list)
}
