package cli

import (
	"cmp"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"log"
	"net"
	"net/http"
	"net/http/httputil"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/discovery"
	"k8s.io/client-go/discovery/cached/memory"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/restmapper"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"

	"github.com/kinproc/kinproc/server/internal/auth/pki"
	"github.com/kinproc/kinproc/server/internal/plainfile"
)

// runProgram runs a controller, whose requests go through the configuration's transport, and kills
// it when ctx ends.
func runProgram(ctx context.Context, config *rest.Config, program string, args []string) error {
	return withProxy(config, func(kubeconfig string) error {
		cmd := exec.CommandContext(ctx, program, args[1:]...) // ends it by SIGKILL
		cmd.Args[0] = args[0]
		out := &tail{}
		cmd.Stdout, cmd.Stderr = out, out
		cmd.Env = append(os.Environ(), "KUBECONFIG="+kubeconfig)
		cmd.WaitDelay = time.Second
		err := cmd.Run()
		if ctx.Err() != nil || err == nil {
			return nil
		}
		return fmt.Errorf("%w\n%s", err, out)
	})
}

// runScripts runs the scripts of the user one after the other.
func runScripts(ctx context.Context, config *rest.Config, scripts []string, rest func()) error {
	return withProxy(config, func(kubeconfig string) error {
		for i, script := range scripts {
			if i > 0 {
				rest()
			}
			cmd := exec.CommandContext(ctx, "sh", script)
			if info, err := os.Stat(script); err == nil && info.Mode()&0o111 != 0 {
				absolute, err := filepath.Abs(script)
				if err != nil {
					return err
				}
				cmd = exec.CommandContext(ctx, absolute)
			}
			cmd.Env = append(os.Environ(), "KUBECONFIG="+kubeconfig)
			cmd.WaitDelay = time.Second
			if out, err := cmd.CombinedOutput(); err != nil {
				return fmt.Errorf("%s: %w\n%s", script, err, out)
			}
		}
		return nil
	})
}

// tail keeps the end of what is written.
type tail struct{ data []byte }

// Write implements io.Writer.
func (t *tail) Write(p []byte) (int, error) {
	const limit = 4 << 10
	t.data = append(t.data, p...)
	t.data = t.data[max(0, len(t.data)-limit):]
	return len(p), nil
}

// String returns the end.
func (t *tail) String() string { return string(t.data) }

// withProxy calls f with a kubeconfig that leads to a server whose requests go through the
// configuration's transport. Who has the file has the access.
func withProxy(config *rest.Config, f func(kubeconfig string) error) (err error) {
	transport, err := rest.TransportFor(config)
	if err != nil {
		return err
	}
	target, err := url.Parse(config.Host)
	if err != nil {
		return err
	}
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return err
	}
	// Clients send no token without TLS, so the secret is in the path.
	secret := "/" + rand.Text()
	proxy := &httputil.ReverseProxy{
		Rewrite:       func(r *httputil.ProxyRequest) { r.SetURL(target) },
		Transport:     transport,
		FlushInterval: -1, // watches
		ErrorLog:      log.New(io.Discard, "", 0),
		// The client sees that the connection breaks.
		ErrorHandler: func(http.ResponseWriter, *http.Request, error) { panic(http.ErrAbortHandler) },
	}
	server := &http.Server{
		Handler:           http.StripPrefix(secret, proxy),
		ReadHeaderTimeout: time.Minute,
		ErrorLog:          log.New(io.Discard, "", 0),
	}
	served := make(chan error, 1)
	go func() { served <- server.Serve(listener) }()
	defer func() {
		err = errors.Join(err, server.Close())
		<-served // http.ErrServerClosed
	}()
	dir, err := os.MkdirTemp("", "kinproc-explore")
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(dir)) }()
	kubeconfig := filepath.Join(dir, kubeconfigName)
	address := "http://" + listener.Addr().String() + secret
	err = pki.WriteKubeconfig(kubeconfig,
		pki.Kubeconfig("explore", address, nil, "explore", &clientcmdapi.AuthInfo{}))
	if err != nil {
		return err
	}
	return f(kubeconfig)
}

// servedTimeout limits how long it may take until the server has the resources of a CRD.
const servedTimeout = 30 * time.Second

// createAll creates the objects of manifests. What belongs in a namespace and names none gets the
// namespace default.
func createAll(ctx context.Context, config *rest.Config, paths []string) error {
	if len(paths) == 0 {
		return nil
	}
	all, err := readObjects(paths)
	if err != nil {
		return err
	}
	client, err := dynamic.NewForConfig(config)
	if err != nil {
		return err
	}
	served, err := discovery.NewDiscoveryClientForConfig(config)
	if err != nil {
		return err
	}
	mapper := restmapper.NewDeferredDiscoveryRESTMapper(memory.NewMemCacheClient(served))
	for _, one := range all {
		object := one.Unstructured
		var last error
		create := func(ctx context.Context) (bool, error) {
			last = createOne(ctx, client, mapper, object)
			if meta.IsNoMatchError(last) {
				mapper.Reset() // the CRD may have just been created
				return false, nil
			}
			return true, last
		}
		err := wait.PollUntilContextTimeout(ctx, 50*time.Millisecond, servedTimeout, true, create)
		if err != nil {
			return fmt.Errorf("%s: %s %s: %w", one.file, object.GetKind(), object.GetName(),
				cmp.Or(last, err))
		}
		err = wait.PollUntilContextTimeout(ctx, 10*time.Millisecond, servedTimeout, true,
			func(ctx context.Context) (bool, error) { return established(ctx, client, object) })
		if err != nil {
			return fmt.Errorf("%s: %s: %w", one.file, object.GetName(), err)
		}
	}
	return nil
}

// fileObject is an object of a manifest.
type fileObject struct {
	*unstructured.Unstructured
	file string
}

// readObjects returns the objects of files, and of the manifests in folders.
func readObjects(paths []string) ([]fileObject, error) {
	var all []fileObject
	for _, path := range paths {
		files := []string{path}
		if info, err := os.Stat(path); err != nil {
			return nil, err
		} else if info.IsDir() {
			entries, err := os.ReadDir(path)
			if err != nil {
				return nil, err
			}
			files = nil
			for _, e := range entries {
				if !e.IsDir() && isManifest(e.Name()) {
					files = append(files, filepath.Join(path, e.Name()))
				}
			}
		}
		before := len(all)
		for _, file := range files {
			data, err := plainfile.Read(file)
			if err != nil {
				return nil, err
			}
			objects, err := decodeObjects(data)
			if err != nil {
				return nil, fmt.Errorf("%s: %w", file, err)
			}
			for _, u := range objects {
				all = append(all, fileObject{u, file})
			}
		}
		if len(all) == before {
			return nil, fmt.Errorf("%s has no objects", path)
		}
	}
	return all, nil
}

func createOne(
	ctx context.Context, client dynamic.Interface, mapper meta.RESTMapper,
	object *unstructured.Unstructured,
) error {
	kind := object.GroupVersionKind()
	mapping, err := mapper.RESTMapping(kind.GroupKind(), kind.Version)
	if err != nil {
		return err
	}
	if mapping.Scope.Name() == meta.RESTScopeNameRoot {
		_, err = client.Resource(mapping.Resource).Create(ctx, object, metav1.CreateOptions{})
		return err
	}
	if object.GetNamespace() == "" {
		object.SetNamespace(metav1.NamespaceDefault)
	}
	_, err = client.Resource(mapping.Resource).Namespace(object.GetNamespace()).
		Create(ctx, object, metav1.CreateOptions{})
	return err
}

// established reports whether an object can be used: a CRD cannot before its resources are served.
func established(ctx context.Context, client dynamic.Interface, object *unstructured.Unstructured) (
	bool, error,
) {
	if object.GetKind() != "CustomResourceDefinition" {
		return true, nil
	}
	definition, err := client.Resource(definitions).Get(ctx, object.GetName(), metav1.GetOptions{})
	if err != nil {
		return false, err
	}
	conditions, _, _ := unstructured.NestedSlice(definition.Object, "status", "conditions") // or null
	for _, c := range conditions {
		if c, ok := c.(map[string]any); ok && c["type"] == "Established" && c["status"] == "True" {
			return true, nil
		}
	}
	return false, nil
}

var definitions = schema.GroupVersionResource{
	Group: "apiextensions.k8s.io", Version: "v1", Resource: "customresourcedefinitions",
}
