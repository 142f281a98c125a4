package cli

import (
	"cmp"
	"errors"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"k8s.io/cli-runtime/pkg/genericclioptions"
	"k8s.io/client-go/rest"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"
	cmdutil "k8s.io/kubectl/pkg/cmd/util"

	"github.com/kinproc/kinproc/server/cli/internal/output"
	"github.com/kinproc/kinproc/server/cli/internal/sandbox"
)

// sandboxForKubectl finds the sandbox of a directory for kubectl. If there is none, it returns one
// with an empty configuration and no folder, because not every kubectl command needs a server.
func sandboxForKubectl(dir string, args []string) (*sandbox.Sandbox, error) {
	s, err := sandbox.Find(dir)
	if errors.Is(err, sandbox.ErrNone) {
		return &sandbox.Sandbox{
			Kubeconfig: filepath.Join(dir, sandbox.DefaultDir, sandbox.KubeconfigName),
			Config:     clientcmdapi.NewConfig(),
		}, nil
	}
	if err != nil && namesKubeconfig(args) {
		// The caller's choice counts. Nothing, not even the environment, may lead kubectl to the
		// sandbox.
		return &sandbox.Sandbox{Kubeconfig: os.DevNull, Config: clientcmdapi.NewConfig()}, nil
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
func guard(flags *genericclioptions.ConfigFlags, s *sandbox.Sandbox) {
	flags.WrapConfigFn = func(config *rest.Config) *rest.Config {
		if path := *flags.KubeConfig; path != "" && path != s.Kubeconfig {
			return config // the caller named it
		}
		raw, err := flags.ToRawKubeConfigLoader().RawConfig()
		if err == nil {
			err = cmp.Or(s.Compare(&raw), s.Foreign)
		}
		if err != nil {
			return &rest.Config{Host: "https://localhost", Transport: refusal{err}}
		}
		s.Inline(&config.TLSClientConfig)
		return config
	}
}

// explain makes kubectl say what to do if it fails because there is no sandbox or because the
// sandbox is not running.
func explain(flags *genericclioptions.ConfigFlags, s *sandbox.Sandbox) {
	hint := ""
	switch {
	case s.Folder == "":
		hint = sandbox.ErrNone.Error()
	case s.Stopped:
		hint = output.Line(s.NotRunning().Error())
	default:
		return
	}
	cmdutil.BehaviorOnFatal(func(message string, code int) {
		used := *flags.KubeConfig == s.Kubeconfig
		switch {
		case used && s.Folder == "" && strings.Contains(message, s.Kubeconfig):
			message = "kinproc: " + hint
		case used && s.Stopped:
			message = strings.TrimSuffix(message, "\n") + "\nkinproc: " + hint
		}
		if message != "" {
			fmt.Fprintln(os.Stderr, strings.TrimSuffix(message, "\n"))
		}
		os.Exit(code)
	})
}

// refusal is a transport that fails every request.
type refusal struct{ err error }

func (r refusal) RoundTrip(*http.Request) (*http.Response, error) { return nil, r.err }
