package cli

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/yaml"

	"github.com/kinproc/kinproc/chain/trace"
	"github.com/kinproc/kinproc/server/cli/internal/output"
	"github.com/kinproc/kinproc/server/cli/internal/sandbox"
	"github.com/kinproc/kinproc/server/internal/nesting"
)

// tracing is the request that kinproc trace sends, and how the trace is shown.
type tracing struct {
	kubeconfig, as    string
	groups            []string
	file, contentType string
	output            string

	follow, steps, objects bool
	user                   string
}

func newTraceCmd(s streams) *cobra.Command {
	var o tracing
	cmd := &cobra.Command{
		Use:   "trace [METHOD] PATH",
		Short: "Show the path of requests through the chain",
		Long: `Send a request and show its path through the chain: the authenticated user,
what each server decided, what admission changed, what was written to etcd,
and the response status.

With --follow, show the requests of all clients as they pass, a line for each.
The method and the beginning of the path select some of them. A watch is shown
when it begins.

  kinproc trace /api/v1/namespaces/default
  kinproc trace --as jane DELETE /apis/apps/v1/namespaces/default/deployments/web
  kinproc trace POST /api/v1/namespaces/default/pods -f pod.yaml
  kinproc trace --follow
  kinproc trace --follow --steps --user jane POST /apis/apps/v1/`,
		Args: func(cmd *cobra.Command, args []string) error {
			if o.follow {
				_, err := o.followOptions(args)
				return err
			}
			if o.user != "" || o.steps {
				return usageError{errors.New("--user and --steps require --follow")}
			}
			if len(args) < 1 || len(args) > 2 || !strings.HasPrefix(args[len(args)-1], "/") {
				return usageError{errors.New("trace requires a method (GET if omitted) " +
					"and a path that begins with / (see kinproc trace --help)")}
			}
			return nil
		},
		RunE: func(cmd *cobra.Command, args []string) error {
			if err := output.CheckFormat(o.output, "json"); err != nil {
				return usageError{err}
			}
			config, err := sandbox.ClientConfig(o.kubeconfig)
			if err != nil {
				return err
			}
			if o.follow {
				follow, err := o.followOptions(args)
				if err != nil {
					return err
				}
				return o.followRequests(cmd.Context(), s, config, follow)
			}
			method, path := http.MethodGet, args[len(args)-1]
			if len(args) == 2 {
				method = strings.ToUpper(args[0])
			}
			return o.run(cmd.Context(), s, config, method, path)
		},
	}
	addKubeconfigFlag(cmd, &o.kubeconfig)
	f := cmd.Flags()
	f.StringVar(&o.as, "as", "", "user to impersonate")
	f.StringSliceVar(&o.groups, "as-group", nil, "groups to impersonate")
	f.StringVarP(&o.file, "filename", "f", "", "file with the body, YAML or JSON; - for standard input")
	f.StringVar(&o.contentType, "content-type", "", "content type of the body; "+
		"application/apply-patch+yaml for a PATCH and application/yaml otherwise if empty")
	addFormatFlag(cmd, &o.output)
	f.BoolVar(&o.objects, "objects", false,
		"show the object, without its managed fields, after each step that changed it")
	f.BoolVar(&o.follow, "follow", false, "show the requests of all clients until interrupted")
	f.BoolVar(&o.steps, "steps", false, "with --follow, show the steps of each request")
	f.StringVar(&o.user, "user", "", "with --follow, show only the requests of this user")
	return cmd
}

func (o *tracing) run(
	ctx context.Context, s streams, config *rest.Config, method, path string,
) error {
	body, err := o.body(s)
	if err != nil {
		return err
	}
	config.Impersonate = rest.ImpersonationConfig{UserName: o.as, Groups: o.groups}
	var traced trace.Traced
	trace.Wrap(config, func(t trace.Traced) { traced = t })
	client, err := rest.HTTPClientFor(config)
	if err != nil {
		return err
	}
	req, err := http.NewRequestWithContext(ctx, method, strings.TrimSuffix(config.Host, "/")+path,
		bytes.NewReader(body))
	if err != nil {
		return usageError{err}
	}
	req.Header.Set("Accept", "application/json")
	if o.objects {
		req.Header.Set(trace.Header, trace.Objects)
	}
	if o.file != "" {
		kind := "application/yaml"
		if method == http.MethodPatch {
			kind = "application/apply-patch+yaml"
		}
		req.Header.Set("Content-Type", cmp.Or(o.contentType, kind))
	}
	answer, err := send(client, req)
	if err != nil {
		return err
	}
	if answer.Steps = traced.Steps; answer.Steps == nil {
		return fmt.Errorf(
			"the server answered %q without a trace: it is not kinproc, or you may not get %s there",
			answer.Status, trace.Path)
	}
	if o.output == "json" {
		return output.JSON(s.out, answer)
	}
	return answer.print(s.out)
}

// body reads the body of the request.
func (o *tracing) body(s streams) ([]byte, error) {
	switch o.file {
	case "":
		return nil, nil
	case "-":
		body, err := io.ReadAll(s.in)
		if err != nil {
			return nil, fmt.Errorf("read the body from standard input: %w", err)
		}
		return body, nil
	}
	body, err := os.ReadFile(o.file)
	if err != nil {
		return nil, fmt.Errorf("read the body: %w", err)
	}
	return body, nil
}

// followOptions returns which requests the arguments select: [METHOD] [PATH].
func (o *tracing) followOptions(args []string) (trace.FollowOptions, error) {
	follow := trace.FollowOptions{User: o.user, Objects: o.objects}
	if o.file != "" || o.contentType != "" || o.as != "" || len(o.groups) > 0 {
		return follow, usageError{errors.New("--follow sends no request, so it cannot be used " +
			"with --filename, --content-type, --as and --as-group")}
	}
	if n := len(args); n > 0 && strings.HasPrefix(args[n-1], "/") {
		follow.PathPrefix, args = args[n-1], args[:n-1]
	}
	if len(args) == 1 {
		follow.Method, args = strings.ToUpper(args[0]), nil
		if !slices.Contains([]string{
			http.MethodGet, http.MethodHead, http.MethodPost, http.MethodPut, http.MethodPatch,
			http.MethodDelete, http.MethodOptions,
		}, follow.Method) {
			return follow, usageError{fmt.Errorf("%s is neither a method nor a path that begins with /",
				follow.Method)}
		}
	}
	if len(args) > 0 {
		return follow, usageError{errors.New("trace --follow takes a method and the beginning of a " +
			"path, both optional (see kinproc trace --help)")}
	}
	return follow, nil
}

// followRequests prints requests as they pass, until ctx ends or the server stops.
func (o *tracing) followRequests(
	ctx context.Context, s streams, config *rest.Config, follow trace.FollowOptions,
) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	err := trace.Follow(ctx, config, follow, func(r trace.Request) {
		if err := o.printRequest(s.out, r); err != nil {
			cancel(err)
		}
	})
	if err == nil && ctx.Err() != nil && !errors.Is(context.Cause(ctx), context.Canceled) {
		return fmt.Errorf("print a request: %w", context.Cause(ctx))
	}
	return err
}

func (o *tracing) printRequest(w io.Writer, r trace.Request) error {
	if o.output == "json" {
		return json.NewEncoder(w).Encode(r)
	}
	var text strings.Builder
	if r.Dropped > 0 {
		fmt.Fprintf(&text, "… %d requests are left out, because they came too fast\n", r.Dropped)
	}
	user := r.User
	if user == "" {
		user = "-"
	}
	fmt.Fprintf(&text, "%s  %d  %9s  %s %s  %s\n", r.Received.Local().Format("15:04:05.000"), r.Code,
		micro(r.Took), r.Method, r.Path, user)
	if o.steps {
		printSteps(&text, r.Steps, r.Took, "other filters and the response")
	}
	_, err := io.WriteString(w, output.Lines(text.String()))
	return err
}

// tracedAnswer is a request's answer with its trace.
type tracedAnswer struct {
	Method string        `json:"method"`
	Path   string        `json:"path"`
	Status string        `json:"status"`
	Bytes  int64         `json:"bytes"` // of the body
	Took   time.Duration `json:"took"`  // in nanoseconds, as the client saw it
	Steps  []trace.Step  `json:"steps"`
}

// send sends a request and returns its answer without the trace.
func send(client *http.Client, req *http.Request) (*tracedAnswer, error) {
	began := time.Now()
	resp, err := client.Do(req)
	if err != nil {
		return nil, err
	}
	defer resp.Body.Close()
	size, err := io.Copy(io.Discard, resp.Body)
	if err != nil {
		return nil, fmt.Errorf("read the response: %w", err)
	}
	return &tracedAnswer{
		Method: req.Method, Path: req.URL.RequestURI(), Status: resp.Status, Bytes: size,
		Took: time.Since(began),
	}, nil
}

func (a *tracedAnswer) print(w io.Writer) error {
	var text strings.Builder
	fmt.Fprintf(&text, "%s %s\n", a.Method, a.Path)
	printSteps(&text, a.Steps, a.Took, "the way there and back")
	fmt.Fprintf(&text, "%s, %d bytes, %s\n", a.Status, a.Bytes, micro(a.Took))
	_, err := io.WriteString(w, output.Lines(text.String()))
	return err
}

// printSteps prints the steps of a request, each below the one during which it took place. The
// times in the second column, with that of what is outside of all steps, add up to what the request
// took.
func printSteps(w *strings.Builder, steps []trace.Step, took time.Duration, outside string) {
	fmt.Fprintf(w, "  %8s  %8s\n", "took", "itself")
	times, rest := nesting.Of(steps, took)
	for i, step := range steps {
		fmt.Fprintf(w, "  %8s  %8s  %-24s  %s", micro(step.Took), micro(times[i].Itself),
			strings.Repeat("  ", times[i].Level)+step.At, step.Decision)
		if step.Reason != "" {
			fmt.Fprintf(w, "  (%s)", step.Reason)
		}
		fmt.Fprintln(w)
		if step.Patch != nil {
			fmt.Fprintf(w, "%48s%s\n", "", step.Patch)
		}
		for line := range strings.Lines(withoutManagedFields(step.Object)) {
			fmt.Fprintf(w, "%48s%s", "", line)
		}
	}
	fmt.Fprintf(w, "  %8s  %8s  %s\n", "", micro(rest.Itself), outside)
}

// withoutManagedFields returns an object in YAML, or nothing if there is none.
func withoutManagedFields(object json.RawMessage) string {
	var o unstructured.Unstructured
	if object == nil || json.Unmarshal(object, &o.Object) != nil {
		return ""
	}
	o.SetManagedFields(nil)
	text, err := yaml.Marshal(o.Object)
	if err != nil {
		return ""
	}
	return string(text)
}

func micro(d time.Duration) string { return d.Round(time.Microsecond).String() }
