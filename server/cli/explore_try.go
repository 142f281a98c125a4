package cli

import (
	"context"
	"fmt"
	"slices"

	"github.com/go-logr/logr"

	"github.com/kinproc/kinproc/server"
	"github.com/kinproc/kinproc/server/internal/disturb"
	"github.com/kinproc/kinproc/server/internal/explorer"
	"github.com/kinproc/kinproc/server/internal/install"
)

// exploring is the exploration of a program.
type exploring struct {
	*exploreOptions
	args []string
}

// options returns those of each control plane.
func (x *exploring) options() server.Options {
	return server.Options{
		Controllers: []string{"*"}, SimulatedNodes: 1, Log: logr.Discard(),
		PodBehaviors: x.server.PodBehaviors, StandInPorts: x.server.StandInPorts,
	}
}

// prepared returns what a control plane has when the objects of manifests have been created.
func (x *exploring) prepared(
	ctx context.Context, manifests []install.File,
) (snapshot *server.Snapshot, err error) {
	err = serve(ctx, x.options(), func(srv *server.Server) (err error) {
		if err := prepareFrom(ctx, srv.RESTConfig(), manifests); err != nil {
			return err
		}
		snapshot, err = srv.Snapshot(ctx)
		return err
	})
	return snapshot, err
}

// try runs the program once, with some scripts of a user.
func (x *exploring) try(
	ctx context.Context, from *server.Snapshot, acts []string, session *disturb.Session,
	baseline *disturb.Baseline,
) (outcome *disturb.Outcome, err error) {
	options := x.options()
	options.AuditBackend, options.From = session, from
	err = serve(ctx, options, func(srv *server.Server) error {
		admin, err := srv.InProcessConfig(disturb.UserName, "system:masters")
		if err != nil {
			return err
		}
		c, end, err := x.newCase(srv.RESTConfig(), session, x.args, acts)
		if err != nil {
			return err
		}
		defer end()
		outcome, err = c.Run(ctx, session, admin, baseline)
		return err
	})
	if err == nil {
		err = context.Cause(ctx) // the outcome may be that of an interrupt
	}
	return outcome, err
}

// leaveOut lets an exploration leave out manifests and scripts.
func (x *exploring) leaveOut(e *explorer.Exploration, manifests []install.File) {
	for _, m := range manifests {
		e.Parts = append(e.Parts, explorer.Part{Name: m.Name})
	}
	for i, script := range x.act {
		e.Parts = append(e.Parts, explorer.Part{
			Name: fmt.Sprintf("act %d (%s)", i+1, script), Act: i + 1,
		})
	}
	e.Without = func(ctx context.Context, out []bool) (explorer.Try, error) {
		var kept []install.File
		for i, m := range manifests {
			if !out[i] {
				kept = append(kept, m)
			}
		}
		acts := slices.Clone(x.act)
		for i := range acts {
			if out[len(manifests)+i] {
				acts[i] = ""
			}
		}
		from, err := x.prepared(ctx, kept)
		return func(ctx context.Context, session *disturb.Session, baseline *disturb.Baseline) (
			*disturb.Outcome, error,
		) {
			return x.try(ctx, from, acts, session, baseline)
		}, err
	}
}
