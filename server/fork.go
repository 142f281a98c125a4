package server

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"

	clientv3 "go.etcd.io/etcd/client/v3"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	"k8s.io/client-go/kubernetes"

	"github.com/kinproc/kinproc/server/internal/controllers/cluster/rootca"
	"github.com/kinproc/kinproc/server/internal/controllers/kubernetesservice"
)

// A control plane that begins with a snapshot has keys and an address of its own. What the snapshot
// says about those of another control plane is corrected before the control plane is ready. If the
// snapshot was taken from a control plane of this process, that happens in etcd, before anything is
// served; see [plane.adoptObjects]. Otherwise hooks do it, the hooks of every start for the service
// default/kubernetes and the config map extension-apiserver-authentication, and the following hook
// for the config maps kube-root-ca.crt, which a control loop would correct a little later.

// forkHooks returns the hooks that only a control plane with Options.From has.
func (p *plane) forkHooks(client kubernetes.Interface) map[string]func(context.Context) error {
	if publishes, err := p.publishesRoots(); err != nil || !publishes || p.options.From == nil {
		return nil
	}
	return map[string]func(context.Context) error{
		"publish-root-certificates": p.unlessFresh(func(ctx context.Context) error {
			return rootca.Publish(ctx, client, p.access.caBundle())
		}),
	}
}

// publishesRoots reports whether the config maps kube-root-ca.crt are those of this control plane.
// Otherwise whoever keeps them instead, if anybody, decides what is in them.
func (p *plane) publishesRoots() (bool, error) { return p.enables(rootca.Name) }

// adoptObjects makes the objects that describe a control plane describe this one. It reports
// whether it has found those that every control plane has, so that hooks need not look.
func (p *plane) adoptObjects(ctx context.Context) (all bool, err error) {
	own, err := p.ownEdits()
	if err != nil {
		return false, err
	}
	found, err := p.editStored(ctx, own)
	if err != nil {
		return false, err
	}
	roots, err := p.rootEdits(ctx)
	if err != nil {
		return false, err
	}
	_, err = p.editStored(ctx, roots)
	return found == len(own), err
}

// ownEdits returns the changes to the objects that every control plane has of its own, by their
// keys below the prefix.
func (p *plane) ownEdits() (map[string]editFunc, error) {
	trusted, err := p.trust().ConfigMap()
	if err != nil {
		return nil, err
	}
	service, err := p.kubernetesService()
	if err != nil {
		return nil, err
	}
	own := service.FirstObjects()
	edits := map[string]editFunc{
		authenticationConfig: withData(trusted.Data),
		kubernetesservice.ServiceKey: edit(func(s *corev1.Service) bool {
			s.Spec.Type, s.Spec.Ports = own.Service.Spec.Type, own.Service.Spec.Ports
			return true
		}),
	}
	if own.Endpoints != nil {
		edits[kubernetesservice.EndpointsKey] = edit(func(e *corev1.Endpoints) bool {
			e.Subsets = own.Endpoints.Subsets
			return true
		})
		edits[kubernetesservice.SliceKey] = edit(func(s *discoveryv1.EndpointSlice) bool {
			s.AddressType, s.Endpoints, s.Ports = own.Slice.AddressType, own.Slice.Endpoints, own.Slice.Ports
			return true
		})
	}
	return edits, nil
}

// rootEdits returns the changes to the config maps kube-root-ca.crt of all namespaces.
func (p *plane) rootEdits(ctx context.Context) (map[string]editFunc, error) {
	if publishes, err := p.publishesRoots(); err != nil || !publishes {
		return nil, err
	}
	prefix := p.storage.Prefix() + "/namespaces/"
	namespaces, err := p.etcd.client.Get(ctx, prefix, clientv3.WithPrefix(), clientv3.WithKeysOnly())
	if err != nil {
		return nil, fmt.Errorf("list the namespaces of the snapshot: %w", err)
	}
	edits := map[string]editFunc{}
	replace := withData(map[string]string{rootca.Key: string(p.access.caBundle())})
	for _, kv := range namespaces.Kvs {
		name := strings.TrimPrefix(string(kv.Key), prefix)
		edits["configmaps/"+name+"/"+rootca.ConfigMap] = replace
	}
	return edits, nil
}

// editStored changes stored objects, and returns how many of them exist. Nothing else may write
// them meanwhile.
func (p *plane) editStored(ctx context.Context, edits map[string]editFunc) (found int, err error) {
	for some := range slices.Chunk(slices.Collect(maps.Keys(edits)), maxOps) {
		var gets, puts []clientv3.Op
		for _, object := range some {
			gets = append(gets, clientv3.OpGet(p.storage.Prefix()+"/"+object))
		}
		read, err := p.etcd.client.Txn(ctx).Then(gets...).Commit()
		if err != nil {
			return 0, fmt.Errorf("read objects of the snapshot: %w", err)
		}
		for i, r := range read.Responses {
			for _, kv := range r.GetResponseRange().GetKvs() {
				puts = append(puts, clientv3.OpPut(string(kv.Key), string(edits[some[i]](kv.Value))))
			}
		}
		if _, err := p.etcd.client.Txn(ctx).Then(puts...).Commit(); err != nil {
			return 0, fmt.Errorf("write objects of the snapshot: %w", err)
		}
		found += len(puts)
	}
	return found, nil
}
