package cli

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strings"

	"k8s.io/client-go/rest"

	"github.com/kinproc/kinproc/chain/trace"
)

// followOptions returns which requests the arguments select: [METHOD] [PATH].
func (o *tracing) followOptions(args []string) (trace.FollowOptions, error) {
	follow := trace.FollowOptions{User: o.user, Objects: o.objects}
	if o.file != "" || o.contentType != "" || o.as != "" || len(o.groups) > 0 {
		return follow, usageError{errors.New("--follow sends no request, so it does not go together " +
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
		printSteps(&text, r.Steps)
	}
	_, err := io.WriteString(w, linesOf(text.String()))
	return err
}
