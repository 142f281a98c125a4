package cli

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"

	"github.com/kinproc/kinproc/chain/trace"
)

func newTraceCmd(s streams) *cobra.Command {
	var kubeconfig, as string
	var groups []string
	cmd := &cobra.Command{
		Use:   "trace [METHOD] PATH",
		Short: "Send a request and show its path through the chain",
		Long: `Send a request and show its path through the chain: the authenticated user,
what each server decided, and the response status.

  kinproc trace /api/v1/namespaces/default
  kinproc trace --as jane DELETE /apis/apps/v1/namespaces/default/deployments/web`,
		Args: func(cmd *cobra.Command, args []string) error {
			if len(args) < 1 || len(args) > 2 || !strings.HasPrefix(args[len(args)-1], "/") {
				return usageError{errors.New("trace takes a method (GET if omitted) " +
					"and a path that begins with / (see kinproc trace --help)")}
			}
			return nil
		},
		RunE: func(cmd *cobra.Command, args []string) error {
			method, path := http.MethodGet, args[len(args)-1]
			if len(args) == 2 {
				method = strings.ToUpper(args[0])
			}
			config, err := traceConfig(kubeconfig)
			if err != nil {
				return err
			}
			config.Impersonate = rest.ImpersonationConfig{UserName: as, Groups: groups}
			client, err := rest.HTTPClientFor(config)
			if err != nil {
				return err
			}
			req, err := http.NewRequestWithContext(cmd.Context(), method,
				strings.TrimSuffix(config.Host, "/")+path, nil)
			if err != nil {
				return usageError{err}
			}
			req.Header.Set(trace.Header, "1")
			req.Header.Set("Accept", "application/json")
			return sendTraced(s.out, client, req)
		},
	}
	cmd.Flags().StringVar(&kubeconfig, "kubeconfig", "",
		"kubeconfig of the server; if empty, KUBECONFIG or the working directory's sandbox")
	cmd.Flags().StringVar(&as, "as", "", "user to impersonate")
	cmd.Flags().StringSliceVar(&groups, "as-group", nil, "groups to impersonate")
	return cmd
}

// traceConfig reads the named kubeconfig or, if none is named, the one of the working directory's
// sandbox.
func traceConfig(kubeconfig string) (*rest.Config, error) {
	rules := clientcmd.NewDefaultClientConfigLoadingRules()
	rules.ExplicitPath = kubeconfig
	source := clientcmd.NewNonInteractiveDeferredLoadingClientConfig(rules, nil)
	if kubeconfig == "" && os.Getenv(clientcmd.RecommendedConfigPathEnvVar) == "" {
		sandbox, err := findSandbox(".")
		if err != nil {
			return nil, err
		}
		if sandbox.stopped {
			return nil, fmt.Errorf("the sandbox in %s is not running; start it with kinproc start",
				sandbox.folder)
		}
		source = clientcmd.NewDefaultClientConfig(*sandbox.config, nil)
	}
	config, err := source.ClientConfig()
	if err != nil {
		return nil,
			fmt.Errorf("read the kubeconfig: %w; start a sandbox here or name one with --kubeconfig", err)
	}
	return config, nil
}

func sendTraced(w io.Writer, client *http.Client, req *http.Request) error {
	began := time.Now()
	resp, err := client.Do(req)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	size, err := io.Copy(io.Discard, resp.Body) // trailers come after the body
	if err != nil {
		return fmt.Errorf("read the response: %w", err)
	}
	took := time.Since(began)

	var steps []trace.Step
	encoded := resp.Trailer.Get(trace.Header)
	if encoded == "" {
		return fmt.Errorf(
			"the server answered %q without a trace: it is not kinproc, or you may not get %s there",
			resp.Status, trace.Path)
	}
	if err := json.Unmarshal([]byte(encoded), &steps); err != nil {
		return fmt.Errorf("read the trace: %w", err)
	}
	fmt.Fprintf(w, "%s %s\n", req.Method, req.URL.RequestURI())
	for _, step := range steps {
		fmt.Fprintf(w, "  %8s  %-15s %s", micro(step.Took), step.At, step.Decision)
		if step.Reason != "" {
			fmt.Fprintf(w, "  (%s)", step.Reason)
		}
		fmt.Fprintln(w)
	}
	fmt.Fprintf(w, "%s, %d bytes, %s\n", resp.Status, size, micro(took))
	return nil
}

func micro(d time.Duration) string { return d.Round(time.Microsecond).String() }
