package cli

import (
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/kinproc/kinproc/server/internal/admission"
	"github.com/kinproc/kinproc/server/internal/auth"
	"github.com/kinproc/kinproc/server/internal/controllers"
)

// completeStartFlags registers completion for flag values of kinproc start.
func completeStartFlags(cmd *cobra.Command) {
	completeServerFlags(cmd)
	for _, flag := range []string{"name", "dashboard-address"} {
		_ = cmd.RegisterFlagCompletionFunc(flag, cobra.NoFileCompletions) // the flag exists
	}
	_ = cmd.MarkFlagDirname("data-dir")
}

// completeServerFlags registers completion for the values of flags that configure a control plane.
func completeServerFlags(cmd *cobra.Command) {
	loops := []string{"*", "-*"}
	for _, loop := range controllers.All() {
		loops = append(loops, loop.Name+"\t"+loop.Purpose, "-"+loop.Name+"\t"+loop.Purpose)
	}
	plugins := admission.NewOptions().Plugins.Registered()
	for flag, words := range map[string][]string{
		"controllers":               loops,
		"enable-admission-plugins":  plugins,
		"disable-admission-plugins": plugins,
		"authorization-mode":        auth.Modes(),
	} {
		_ = cmd.RegisterFlagCompletionFunc(flag, completeList(words)) // the flags exist
	}
	for _, flag := range []string{"bind-address", "secure-port", "v"} {
		_ = cmd.RegisterFlagCompletionFunc(flag, cobra.NoFileCompletions)
	}
}

// completeList completes the last item of a comma-separated list with words that are not in the
// list yet. A word may be followed by a tab and a description.
func completeList(words []string) cobra.CompletionFunc {
	return func(_ *cobra.Command, _ []string, typed string) ([]string, cobra.ShellCompDirective) {
		before := typed[:strings.LastIndex(typed, ",")+1]
		chosen := strings.Split(before, ",")
		var completions []string
		for _, word := range words {
			name, _, _ := strings.Cut(word, "\t")
			if strings.HasPrefix(name, typed[len(before):]) && !slices.Contains(chosen, name) {
				completions = append(completions, before+word)
			}
		}
		return completions, cobra.ShellCompDirectiveNoFileComp | cobra.ShellCompDirectiveNoSpace
	}
}
