// Engine is an extension API server whose kind is declared in the same way as kinproc's built-in
// kinds (see room.go). It stores objects in files (see files.go) and has a websocket subresource
// (see talk.go). See README.md for how to run it.
package main

import (
	"context"
	_ "embed"
	"encoding/base64"
	"flag"
	"fmt"
	"log"
	"net"
	"os"
	"os/signal"
	"strings"

	"k8s.io/apimachinery/pkg/runtime/serializer"
	"k8s.io/apimachinery/pkg/util/sets"
	openapinamer "k8s.io/apiserver/pkg/endpoints/openapi"
	genericapiserver "k8s.io/apiserver/pkg/server"
	genericfilters "k8s.io/apiserver/pkg/server/filters"
	genericoptions "k8s.io/apiserver/pkg/server/options"
	"k8s.io/apiserver/pkg/util/compatibility"

	"github.com/kinproc/kinproc/chain/kind"
)

// registration holds the manifests that register the server with kinproc, with placeholders for the
// server's port and certificate.
//
//go:embed registration.yaml
var registration string

func main() {
	listen := flag.String("listen", "127.0.0.1:8444", "address to listen on")
	kubeconfig := flag.String("kubeconfig", ".kinproc/kubeconfig",
		"kubeconfig of the API server that authenticates and authorizes")
	dir := flag.String("data-dir", "rooms", "directory for the objects")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	l, err := net.Listen("tcp", *listen)
	if err != nil {
		log.Fatal(err)
	}
	s, manifests, err := newServer(l, *kubeconfig, *dir)
	if err != nil {
		log.Fatal(err)
	}
	fmt.Print(manifests)
	if err := s.PrepareRun().RunWithContext(ctx); err != nil {
		log.Fatal(err)
	}
}

// newServer returns the server and the manifests that register it with kinproc.
func newServer(
	l net.Listener, kubeconfig, dir string,
) (*genericapiserver.GenericAPIServer, string, error) {
	scheme, err := kind.NewScheme(chat())
	if err != nil {
		return nil, "", err
	}
	codecs := serializer.NewCodecFactory(scheme)
	objects, err := openFiles(dir, codecs.LegacyCodec(groupVersion))
	if err != nil {
		return nil, "", err
	}

	// Users are authenticated by the aggregator's headers or by asking kinproc, and authorized by
	// asking kinproc.
	options := genericoptions.NewRecommendedOptions("", nil)
	options.Etcd, options.Admission = nil, nil
	options.Features.EnablePriorityAndFairness = false
	options.CoreAPI.CoreAPIKubeconfigPath = kubeconfig
	options.Authentication.RemoteKubeConfigFile = kubeconfig
	options.Authorization.RemoteKubeConfigFile = kubeconfig
	options.SecureServing.Listener = l
	options.SecureServing.ServerCert.CertDirectory = "" // generate a new certificate at every start
	if err := options.SecureServing.MaybeDefaultWithSelfSignedCerts("localhost",
		[]string{"chat.default.svc"}, nil); err != nil {
		return nil, "", err
	}

	config := genericapiserver.NewRecommendedConfig(codecs)
	config.EffectiveVersion = compatibility.DefaultBuildEffectiveVersion()
	config.RESTOptionsGetter = objects
	config.LongRunningFunc = genericfilters.BasicLongRunningRequestCheck(sets.NewString("watch"),
		sets.NewString("talk"))
	namer := openapinamer.NewDefinitionNamer(scheme)
	config.OpenAPIConfig = genericapiserver.DefaultOpenAPIConfig(definitions, namer)
	config.OpenAPIV3Config = genericapiserver.DefaultOpenAPIV3Config(definitions, namer)
	if err := options.ApplyTo(config); err != nil {
		return nil, "", err
	}
	s, err := config.Complete().New("chat", genericapiserver.NewEmptyDelegate())
	if err != nil {
		return nil, "", err
	}
	groups, err := kind.APIGroups(scheme, objects, nil, chat())
	if err != nil {
		return nil, "", err
	}
	if err := s.InstallAPIGroups(groups...); err != nil {
		return nil, "", err
	}
	cert, _ := s.SecureServingInfo.Cert.CurrentCertKeyContent()
	_, port, err := net.SplitHostPort(l.Addr().String())
	if err != nil {
		return nil, "", err
	}
	return s, strings.NewReplacer("PORT", port, "CA_BUNDLE", base64.StdEncoding.EncodeToString(cert)).
		Replace(registration), nil
}
