package server

import (
	"time"

	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/informers/admissionregistration"
	"k8s.io/client-go/informers/certificates"
	coreinformers "k8s.io/client-go/informers/core"
	"k8s.io/client-go/informers/discovery"
	"k8s.io/client-go/informers/flowcontrol"
	"k8s.io/client-go/informers/internalinterfaces"
	"k8s.io/client-go/informers/networking"
	"k8s.io/client-go/informers/rbac"
	storageinformers "k8s.io/client-go/informers/storage"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/cache"

	"github.com/kinproc/kinproc/chain"
	"github.com/kinproc/kinproc/chain/core"
)

// informerFactory makes the informers of the server itself. Those of built-in kinds in their hub
// version read from etcd, so that the server does not have to serve the kinds to itself: its start
// would wait for the routes, requests and watch caches of twenty kinds that most clients never use.
// All other informers are those of the generated factory.
type informerFactory struct {
	informers.SharedInformerFactory
	storage *chain.Storage
}

func newInformerFactory(client kubernetes.Interface, storage *chain.Storage) informerFactory {
	return informerFactory{informers.NewSharedInformerFactory(client, 10*time.Minute), storage}
}

// InformerFor implements informers.SharedInformerFactory.
func (f informerFactory) InformerFor(
	example runtime.Object, new internalinterfaces.NewInformerFunc,
) cache.SharedIndexInformer {
	return f.SharedInformerFactory.InformerFor(example,
		func(client kubernetes.Interface, resync time.Duration) cache.SharedIndexInformer {
			if !core.IsHub(example) {
				return new(client, resync)
			}
			return f.storage.Informer(example, "")
		})
}

// The groups below are those of which the server has informers. Their factories use InformerFor.

func (f informerFactory) Admissionregistration() admissionregistration.Interface {
	return admissionregistration.New(f, "", nil)
}

func (f informerFactory) Certificates() certificates.Interface {
	return certificates.New(f, "", nil)
}

func (f informerFactory) Core() coreinformers.Interface { return coreinformers.New(f, "", nil) }

func (f informerFactory) Discovery() discovery.Interface { return discovery.New(f, "", nil) }

func (f informerFactory) Flowcontrol() flowcontrol.Interface { return flowcontrol.New(f, "", nil) }

func (f informerFactory) Networking() networking.Interface { return networking.New(f, "", nil) }

func (f informerFactory) Rbac() rbac.Interface { return rbac.New(f, "", nil) }

func (f informerFactory) Storage() storageinformers.Interface {
	return storageinformers.New(f, "", nil)
}
