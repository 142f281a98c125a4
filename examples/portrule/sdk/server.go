// Package sdk serves the kind PortRule with package server/extension.
package sdk

import (
	"context"
	"fmt"

	"golang.org/x/sync/errgroup"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/client-go/rest"

	"github.com/kinproc/kinproc/chain/kind"
	v1 "github.com/kinproc/kinproc/examples/portrule/v1"
	"github.com/kinproc/kinproc/server/extension"
)

// New returns the server. Files in dir store the objects.
func New(config *rest.Config, dir string) (*extension.Server, error) {
	return extension.New(extension.Options{
		Groups: []kind.Group{portRules()}, RESTConfig: config, Storage: extension.Files(dir),
	})
}

// Run serves, registered with the control plane of config, until ctx is done.
func Run(ctx context.Context, config *rest.Config, dir string) error {
	s, err := New(config, dir)
	if err != nil {
		return err
	}
	work, ctx := errgroup.WithContext(ctx)
	work.Go(func() error { return s.Run(ctx) })
	work.Go(func() error {
		err := extension.Register(ctx, config, s.Registration())
		if ctx.Err() != nil {
			return nil
		}
		return err
	})
	return work.Wait()
}

func portRules() kind.Group {
	return kind.Group{
		Name: v1.GroupVersion.Group,
		Versions: []kind.GroupVersion{
			{Version: v1.GroupVersion.Version, AddToScheme: v1.AddToScheme},
		},
		Kinds: []kind.Declaration{&kind.Kind[*v1.PortRule]{
			Plural: "portrules",
			Status: &kind.Status[*v1.PortRule]{},
			Default: func(p *v1.PortRule) {
				if p.Spec.Protocol == "" {
					p.Spec.Protocol = "TCP"
				}
			},
			Validate: validate,
			Table: kind.Table[*v1.PortRule]{
				Columns: []kind.Column{
					kind.NameColumn(), {Name: "Ports"}, {Name: "Protocol"}, {Name: "Phase"},
				},
				Row: func(p *v1.PortRule) []any {
					ports := fmt.Sprintf("%d-%d", p.Spec.From, p.Spec.To)
					return []any{p.Name, ports, p.Spec.Protocol, p.Status.Phase}
				},
			},
		}},
	}
}

func validate(_ context.Context, p *v1.PortRule) field.ErrorList {
	var errs field.ErrorList
	spec := field.NewPath("spec")
	if p.Spec.From < 1 || p.Spec.From > 65535 {
		errs = append(errs, field.Invalid(spec.Child("from"), p.Spec.From, "is not a port"))
	}
	if p.Spec.To < p.Spec.From || p.Spec.To > 65535 {
		errs = append(errs, field.Invalid(spec.Child("to"), p.Spec.To, "must be from spec.from to 65535"))
	}
	if p.Spec.Protocol != "TCP" && p.Spec.Protocol != "UDP" {
		errs = append(errs, field.NotSupported(spec.Child("protocol"), p.Spec.Protocol,
			[]string{"TCP", "UDP"}))
	}
	return errs
}
