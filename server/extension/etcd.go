package extension

import (
	"net/http"

	flowcontrolrequest "k8s.io/apiserver/pkg/util/flowcontrol/request"

	"k8s.io/apiserver/pkg/server/healthz"
	"k8s.io/apiserver/pkg/storage/storagebackend"
	"k8s.io/apiserver/pkg/storage/storagebackend/factory"
)

// openEtcd returns the storage in an etcd cluster, with a check that the cluster responds.
func openEtcd(config storagebackend.Config, c codecs) (*openStorage, error) {
	config.StorageObjectCountTracker = flowcontrolrequest.NewStorageObjectCountTracker()
	stop := make(chan struct{})
	check, err := factory.CreateHealthCheck(config, stop)
	if err != nil {
		close(stop)
		return nil, err
	}
	return &openStorage{
		RESTOptionsGetter: etcdGetter{config, c},
		checks: []healthz.HealthChecker{
			healthz.NamedCheck("etcd", func(*http.Request) error { return check() }),
		},
		close: func() error { close(stop); return nil },
	}, nil
}
