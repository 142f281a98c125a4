// Package apiserver serves the kind PortRule with k8s.io/apiserver, in the way of sample-apiserver.
package apiserver

import (
	"context"
	"encoding/base64"
	"fmt"
	"net"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/runtime/serializer"
	openapinamer "k8s.io/apiserver/pkg/endpoints/openapi"
	genericapiserver "k8s.io/apiserver/pkg/server"
	genericoptions "k8s.io/apiserver/pkg/server/options"
	"k8s.io/apiserver/pkg/util/compatibility"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/tools/clientcmd"

	v1 "github.com/kinproc/kinproc/examples/portrule/v1"
)

// Run serves, registered with the control plane of a kubeconfig, until ctx is done. Etcd has the
// URLs of an etcd cluster for the objects.
func Run(ctx context.Context, kubeconfig string, etcd []string) error {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return err
	}
	s, err := newServer(l, kubeconfig, etcd)
	if err != nil {
		return err
	}
	cert, _ := s.SecureServingInfo.Cert.CurrentCertKeyContent()
	if err := register(ctx, kubeconfig, l.Addr().(*net.TCPAddr).Port, cert); err != nil {
		return err
	}
	return s.PrepareRun().RunWithContext(ctx)
}

func newServer(
	l net.Listener, kubeconfig string, etcd []string,
) (*genericapiserver.GenericAPIServer, error) {
	scheme, err := newScheme()
	if err != nil {
		return nil, err
	}
	codecs := serializer.NewCodecFactory(scheme)
	options := genericoptions.NewRecommendedOptions("/portrules", codecs.LegacyCodec(v1.GroupVersion))
	options.Etcd.StorageConfig.Transport.ServerList = etcd
	options.Admission = nil
	options.Features.EnablePriorityAndFairness = false
	options.CoreAPI.CoreAPIKubeconfigPath = kubeconfig
	options.Authentication.RemoteKubeConfigFile = kubeconfig
	options.Authorization.RemoteKubeConfigFile = kubeconfig
	options.SecureServing.Listener = l
	options.SecureServing.ServerCert.CertDirectory = "" // a new certificate at every start
	if err := options.SecureServing.MaybeDefaultWithSelfSignedCerts("localhost",
		[]string{"portrules.default.svc"}, nil); err != nil {
		return nil, err
	}
	config := genericapiserver.NewRecommendedConfig(codecs)
	config.EffectiveVersion = compatibility.DefaultBuildEffectiveVersion()
	namer := openapinamer.NewDefinitionNamer(scheme)
	config.OpenAPIConfig = genericapiserver.DefaultOpenAPIConfig(definitions, namer)
	config.OpenAPIV3Config = genericapiserver.DefaultOpenAPIV3Config(definitions, namer)
	if err := options.ApplyTo(config); err != nil {
		return nil, err
	}
	s, err := config.Complete().New("portrules", genericapiserver.NewEmptyDelegate())
	if err != nil {
		return nil, err
	}
	s.ShutdownTimeout = time.Second
	storage, err := newStorage(scheme, config.RESTOptionsGetter)
	if err != nil {
		return nil, err
	}
	group := genericapiserver.NewDefaultAPIGroupInfo(v1.GroupVersion.Group, scheme,
		runtime.NewParameterCodec(scheme), codecs)
	group.VersionedResourcesStorageMap[v1.GroupVersion.Version] = storage
	return s, s.InstallAPIGroup(&group)
}

// newScheme returns a scheme in which the version is the internal version too.
func newScheme() (*runtime.Scheme, error) {
	scheme := runtime.NewScheme()
	if err := v1.AddToScheme(scheme); err != nil {
		return nil, err
	}
	internal := schema.GroupVersion{
		Group: v1.GroupVersion.Group, Version: runtime.APIVersionInternal,
	}
	scheme.AddKnownTypes(internal, &v1.PortRule{}, &v1.PortRuleList{})
	scheme.AddTypeDefaultingFunc(&v1.PortRule{}, func(obj any) {
		if p := obj.(*v1.PortRule); p.Spec.Protocol == "" {
			p.Spec.Protocol = "TCP"
		}
	})
	unversioned := schema.GroupVersion{Version: "v1"}
	metav1.AddToGroupVersion(scheme, unversioned)
	scheme.AddUnversionedTypes(unversioned, &metav1.Status{}, &metav1.APIVersions{},
		&metav1.APIGroupList{}, &metav1.APIGroup{}, &metav1.APIResourceList{})
	return scheme, scheme.SetVersionPriority(v1.GroupVersion)
}

// register applies the Service and the APIService.
func register(ctx context.Context, kubeconfig string, port int, caBundle []byte) error {
	config, err := clientcmd.BuildConfigFromFlags("", kubeconfig)
	if err != nil {
		return err
	}
	client, err := dynamic.NewForConfig(config)
	if err != nil {
		return err
	}
	options := metav1.ApplyOptions{FieldManager: "portrules", Force: true}
	services := client.Resource(schema.GroupVersionResource{Version: "v1", Resource: "services"})
	if _, err := services.Namespace("default").Apply(ctx, "portrules", &unstructured.Unstructured{
		Object: map[string]any{
			"apiVersion": "v1", "kind": "Service", "metadata": map[string]any{"name": "portrules"},
			"spec": map[string]any{"type": "ExternalName", "externalName": "localhost"},
		}}, options); err != nil {
		return fmt.Errorf("apply the service: %w", err)
	}
	name := v1.GroupVersion.Version + "." + v1.GroupVersion.Group
	_, err = client.Resource(schema.GroupVersionResource{
		Group: "apiregistration.k8s.io", Version: "v1", Resource: "apiservices",
	}).Apply(ctx, name, &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": "apiregistration.k8s.io/v1", "kind": "APIService",
		"metadata": map[string]any{"name": name},
		"spec": map[string]any{
			"group": v1.GroupVersion.Group, "version": v1.GroupVersion.Version,
			"groupPriorityMinimum": int64(1000), "versionPriority": int64(100),
			"service": map[string]any{
				"name": "portrules", "namespace": "default", "port": int64(port),
			},
			"caBundle": base64.StdEncoding.EncodeToString(caBundle),
		},
	}}, options)
	return err
}
