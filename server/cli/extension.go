package cli

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"k8s.io/client-go/rest"

	"github.com/kinproc/kinproc/server/cli/internal/develop"
	"github.com/kinproc/kinproc/server/cli/internal/sandbox"
	"github.com/kinproc/kinproc/server/cli/internal/scaffold"
	"github.com/kinproc/kinproc/server/extension"
)

func newExtensionCmd(s streams) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "extension",
		Short: "Write, run and register extension API servers",
		Long: `Write, run and register extension API servers: servers of API groups of their own, to which the
aggregator sends requests.

  kinproc extension init portrule && cd portrule
  kinproc extension run
  kinproc extension add kind --group=portrule.example.com --version=v1 --kind=PortSet
  kinproc extension add subresource --group=portrule.example.com --version=v1 --kind=PortSet \
    --subresource=approval`,
		Args: noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	add := &cobra.Command{
		Use: "add", Short: "Add to an extension API server", Args: noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	add.AddCommand(newExtensionAddKindCmd(s), newExtensionAddSubresourceCmd(s))
	cmd.AddCommand(newExtensionInitCmd(s), add, newExtensionRunCmd(s),
		newExtensionRegisterCmd(s), newExtensionUnregisterCmd(s), newExtensionDocsCmd())
	return cmd
}

func newExtensionInitCmd(s streams) *cobra.Command {
	var o scaffolding
	cmd := &cobra.Command{
		Use:   "init NAME",
		Short: "Write the Go module of an extension API server, in a new folder NAME",
		Long: `Write the Go module of an extension API server, in a new folder NAME: the types and the
declaration of a kind, the program, tests, and manifests for a cluster.`,
		Args: oneName,
		RunE: func(cmd *cobra.Command, args []string) error {
			return o.begin(cmd.Context(), s, scaffold.Extension, args[0], "kinproc extension run")
		},
	}
	o.addFlags(cmd.Flags())
	o.addScopeFlag(cmd.Flags())
	cmd.Flags().StringVar(&o.project.Storage, "storage", "", "where the server stores objects: "+
		strings.Join(scaffold.Storages(), ", ")+
		"; if empty, files if it is given a folder, and memory otherwise")
	_ = cmd.RegisterFlagCompletionFunc("storage", // the flag exists
		cobra.FixedCompletions(scaffold.Storages(), cobra.ShellCompDirectiveNoFileComp))
	return cmd
}

func newExtensionAddKindCmd(s streams) *cobra.Command {
	var o scaffolding
	cmd := &cobra.Command{
		Use:   "kind [DIR]",
		Short: "Add a kind to the extension API server in DIR, or in the working directory",
		Args:  atMostOneFolder,
		RunE: func(_ *cobra.Command, args []string) error {
			k := &o.project.Kind
			if k.Group == "" || k.Version == "" || k.Kind == "" {
				return usageError{errors.New("add kind requires --group, --version and --kind")}
			}
			o.complete("")
			if err := k.Validate(); err != nil {
				return usageError{err}
			}
			files, err := scaffold.AddKind(folderOf(args), *k)
			printFiles(s, args, files)
			return err
		},
	}
	o.addKindFlags(cmd.Flags())
	o.addScopeFlag(cmd.Flags())
	return cmd
}

func newExtensionAddSubresourceCmd(s streams) *cobra.Command {
	var o scaffolding
	var name string
	cmd := &cobra.Command{
		Use:   "subresource [DIR]",
		Short: "Add a subresource to a kind of the extension API server in DIR",
		Long: `Add a subresource to a kind of the extension API server in DIR, or in the working directory.

The subresource scale is that of kubectl scale and of autoscalers. Any other one, such as approval,
is a view of the object that changes one field of its status; edit what it may change.`,
		Args: atMostOneFolder,
		RunE: func(_ *cobra.Command, args []string) error {
			k := &o.project.Kind
			if k.Group == "" || k.Version == "" || k.Kind == "" || name == "" {
				return usageError{errors.New("add subresource requires --group, --version, --kind and " +
					"--subresource")}
			}
			o.complete("")
			if err := errors.Join(k.Validate(), scaffold.ValidateSubresource(name)); err != nil {
				return usageError{err}
			}
			files, err := scaffold.AddSubresource(folderOf(args), *k, name)
			printFiles(s, args, files)
			return err
		},
	}
	f, k := cmd.Flags(), &o.project.Kind
	f.StringVar(&k.Group, "group", "", "API group of the kind")
	f.StringVar(&k.Version, "version", "", "version in which the kind is declared")
	f.StringVar(&k.Kind, "kind", "", "name of the kind")
	f.StringVar(&name, "subresource", "", "name of the subresource")
	return cmd
}

// printFiles prints the names of files in the folder that the arguments name.
func printFiles(s streams, args, files []string) {
	for _, file := range files {
		fmt.Fprintln(s.out, filepath.Join(folderOf(args), filepath.FromSlash(file)))
	}
}

func newExtensionRunCmd(s streams) *cobra.Command {
	var kubeconfig, bindAddress string
	var port int
	cmd := &cobra.Command{
		Use:   "run [DIR]",
		Short: "Build, run and register an extension API server, and again after each change",
		Long: `Build the extension API server in DIR, or in the working directory, run it and register it with
an ephemeral control plane, or with the one of --kubeconfig. After a change of a Go file, build and
run it again; its objects stay. Ctrl-C stops everything and unregisters the server.

The control plane of --kubeconfig must reach this machine. If it runs in containers or behind a
router, name an address that it reaches, such as --bind-address 172.18.0.1 for kind on Linux.`,
		Args: atMostOneFolder,
		RunE: func(cmd *cobra.Command, args []string) error {
			return withControlPlane(cmd.Context(), s, "extension", "extension API server", folderOf(args),
				kubeconfig, func(ctx context.Context, p develop.Project) error {
					address, err := develop.Reachable(bindAddress, port, p.Config.Host)
					if err != nil {
						return usageError{err}
					}
					return develop.Extension{
						Project: p, Address: address, Unregister: kubeconfig != "",
					}.Run(ctx)
				})
		},
	}
	addOwnFlag(cmd, &kubeconfig)
	cmd.Flags().StringVar(&bindAddress, "bind-address", "",
		"IP address at which the control plane reaches the server; if empty, the one from which "+
			"this machine reaches the control plane")
	cmd.Flags().IntVar(&port, "secure-port", 0, "port of the server; 0 picks a free one")
	return cmd
}

// registrationTimeout is how long a server may take to become available.
const registrationTimeout = time.Minute

func newExtensionRegisterCmd(s streams) *cobra.Command {
	return newRegistrationCmd(s, "register",
		"Register a running extension API server, and wait until it is available",
		extension.Register, "registered")
}

func newExtensionUnregisterCmd(s streams) *cobra.Command {
	return newRegistrationCmd(s, "unregister",
		"Unregister an extension API server",
		extension.Unregister, "unregistered")
}

func newRegistrationCmd(
	s streams, name, short string,
	do func(context.Context, *rest.Config, *extension.Registration) error, done string,
) *cobra.Command {
	var file, kubeconfig string
	cmd := &cobra.Command{
		Use:   name + " -f FILE",
		Short: short,
		Long: short + `. FILE has its
Service, EndpointSlice and APIServices, as the server writes them with --registration=FILE.`,
		Args: noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if file == "" {
				return usageError{fmt.Errorf("%s requires --filename", name)}
			}
			r, err := develop.ReadRegistration(file)
			if err != nil {
				return err
			}
			config, err := sandbox.ClientConfig(kubeconfig)
			if err != nil {
				return err
			}
			ctx, cancel := context.WithTimeout(cmd.Context(), registrationTimeout)
			defer cancel()
			if err := do(ctx, config, r); err != nil {
				return err
			}
			for _, a := range r.APIServices {
				fmt.Fprintf(s.out, "%s %s\n", a.Name, done)
			}
			return nil
		},
	}
	cmd.Flags().StringVarP(&file, "filename", "f", "", "file of the registration")
	addKubeconfigFlag(cmd, &kubeconfig)
	return cmd
}

func newExtensionDocsCmd() *cobra.Command {
	return &cobra.Command{
		Use:   "docs [DIR]",
		Short: "Write the comments of Go types as methods, for go generate",
		Long: `Write the comments of the Go types in DIR, or in the working directory, as methods SwaggerDoc in
zz_generated.docs.go. An extension API server describes its kinds with them.`,
		Args: atMostOneFolder,
		RunE: func(_ *cobra.Command, args []string) error {
			return scaffold.Document(folderOf(args))
		},
	}
}
