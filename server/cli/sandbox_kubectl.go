package cli

import (
	"cmp"
	"errors"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"

	"k8s.io/cli-runtime/pkg/genericclioptions"
	"k8s.io/client-go/rest"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"
	clientcmdlatest "k8s.io/client-go/tools/clientcmd/api/latest"
	clientcmdv1 "k8s.io/client-go/tools/clientcmd/api/v1"
	cmdutil "k8s.io/kubectl/pkg/cmd/util"
)

// sandboxForKubectl finds the sandbox of a directory for kubectl. If there is none, it returns an
// empty configuration, because not every kubectl command needs a server.
func sandboxForKubectl(dir string, args []string) (*sandbox, error) {
	s, err := findSandbox(dir)
	if errors.As(err, new(noSandboxError)) {
		return &sandbox{
			kubeconfig: filepath.Join(dir, defaultDataDir, kubeconfigName),
			config:     clientcmdapi.NewConfig(),
		}, nil
	}
	if err != nil && namesKubeconfig(args) {
		// The caller's choice counts. Nothing, not even the environment, may lead kubectl to the
		// sandbox.
		return &sandbox{kubeconfig: os.DevNull, config: clientcmdapi.NewConfig()}, nil
	}
	return s, err
}

// namesKubeconfig reports whether the arguments have a --kubeconfig flag.
func namesKubeconfig(args []string) bool {
	if end := slices.Index(args, "--"); end >= 0 {
		args = args[:end]
	}
	return slices.ContainsFunc(args, func(arg string) bool {
		return arg == "--kubeconfig" || strings.HasPrefix(arg, "--kubeconfig=")
	})
}

// guard makes kubectl use exactly the configuration that was checked. kubectl takes a path and
// reads the file again, and the directory may have been replaced in the meantime; then every
// request fails.
func (s *sandbox) guard(flags *genericclioptions.ConfigFlags) {
	flags.WrapConfigFn = func(config *rest.Config) *rest.Config {
		if path := *flags.KubeConfig; path != "" && path != s.kubeconfig {
			return config // the caller named it
		}
		if err := cmp.Or(s.compare(flags), s.foreign); err != nil {
			return &rest.Config{Host: "https://localhost", Transport: refusal{err}}
		}
		tls := &config.TLSClientConfig
		s.inline(&tls.CAFile, &tls.CAData)
		s.inline(&tls.CertFile, &tls.CertData)
		s.inline(&tls.KeyFile, &tls.KeyData)
		return config
	}
}

// explain makes kubectl say what to do if it fails because there is no sandbox or because the
// sandbox is not running.
func (s *sandbox) explain(flags *genericclioptions.ConfigFlags) {
	hint := ""
	switch {
	case s.folder == "":
		hint = noSandboxError{}.Error()
	case s.stopped:
		hint = "the sandbox in " + oneLineOf(s.folder) + " is not running; start it with kinproc start"
	default:
		return
	}
	cmdutil.BehaviorOnFatal(func(message string, code int) {
		used := *flags.KubeConfig == s.kubeconfig
		switch {
		case used && s.folder == "" && strings.Contains(message, s.kubeconfig):
			message = "kinproc: " + hint
		case used && s.stopped:
			message = strings.TrimSuffix(message, "\n") + "\nkinproc: " + hint
		}
		if message != "" {
			fmt.Fprintln(os.Stderr, strings.TrimSuffix(message, "\n"))
		}
		os.Exit(code)
	})
}

// compare returns an error if the kubeconfig that kubectl has read differs from the one that was
// checked.
func (s *sandbox) compare(flags *genericclioptions.ConfigFlags) error {
	raw, err := flags.ToRawKubeConfigLoader().RawConfig()
	if err != nil {
		return err
	}
	var written clientcmdv1.Config
	if err := clientcmdlatest.Scheme.Convert(&raw, &written, nil); err != nil {
		return err
	}
	config, err := trusted(&written, func(path string) ([]byte, error) {
		data, ok := s.files[filepath.Clean(path)]
		if !ok {
			return nil, errors.New("not read before")
		}
		return data, nil
	})
	if err != nil || !reflect.DeepEqual(config, s.config) {
		return fmt.Errorf("%s was replaced while it was read", s.kubeconfig)
	}
	return nil
}

// inline replaces the path of a file that was read with its content.
func (s *sandbox) inline(path *string, data *[]byte) {
	content, ok := s.files[filepath.Clean(*path)]
	if !ok {
		return
	}
	if *path = ""; len(*data) == 0 {
		*data = content
	}
}

// refusal is a transport that fails every request.
type refusal struct{ err error }

func (r refusal) RoundTrip(*http.Request) (*http.Response, error) { return nil, r.err }
