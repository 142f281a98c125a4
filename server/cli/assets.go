package cli

import (
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/kinproc/kinproc/server"
	"github.com/kinproc/kinproc/server/cli/internal/private"
	"github.com/kinproc/kinproc/server/cli/internal/standin"
)

// assetsVariable is the environment variable by which envtest finds its programs.
const assetsVariable = "KUBEBUILDER_ASSETS"

func newAssetsCmd(s streams) *cobra.Command {
	var dir, kubernetes string
	cmd := &cobra.Command{
		Use:   "envtest-assets",
		Short: "Print a folder with kube-apiserver, etcd and kubectl, for tests with envtest",
		Long: `Print a folder with kube-apiserver, etcd and kubectl, which tests with envtest find by an
environment variable:

  KUBEBUILDER_ASSETS=$(kinproc envtest-assets) go test ./...

All three are this program under other names. The folder is in the user's cache directory, one for
each build of kinproc. It can be removed at any time, and is removed when it has not been used for
30 days.

With --kubernetes, kube-apiserver behaves as an earlier version; that folder is a part of the other:

  KUBEBUILDER_ASSETS=$(kinproc envtest-assets --kubernetes=1.35) go test ./...`,
		Args:              noArgs,
		ValidArgsFunction: cobra.NoFileCompletions,
		RunE: func(*cobra.Command, []string) error {
			if err := checkVersion(kubernetes); kubernetes != "" && err != nil {
				return usageError{err}
			}
			folder, err := fillAssets(dir, kubernetes)
			if err != nil {
				return err
			}
			_, err = fmt.Fprintln(s.out, folder)
			return err
		},
	}
	cmd.Flags().StringVar(&dir, "dir", "", "folder to use instead, which must belong to the caller")
	_ = cmd.MarkFlagDirname("dir") // the flag exists
	cmd.Flags().StringVar(&kubernetes, "kubernetes", "",
		"minor version of Kubernetes: "+strings.Join(server.EmulatedVersions(), ", "))
	_ = cmd.RegisterFlagCompletionFunc("kubernetes",
		cobra.FixedCompletions(server.EmulatedVersions(), cobra.ShellCompDirectiveNoFileComp))
	return cmd
}

// checkVersion returns an error if kinproc cannot behave as a version of Kubernetes.
func checkVersion(version string) error {
	if versions := server.EmulatedVersions(); !slices.Contains(versions, version) {
		return fmt.Errorf("--kubernetes: %q is not one of %s", version, strings.Join(versions, ", "))
	}
	return nil
}

// fillAssets puts the programs into a folder, or into the one in the cache directory, and returns
// its absolute path. Those of a version of Kubernetes are in a folder of their own there, which has
// the version as its name.
func fillAssets(dir, version string) (string, error) {
	program, err := os.Executable()
	if err != nil {
		return "", err
	}
	cached := dir == ""
	if cached {
		dir, err = cachedAssets(program)
	} else {
		err = makeOwn(dir)
	}
	if err != nil {
		return "", err
	}
	folder := filepath.Join(dir, version)
	if err := makeOwn(folder); err != nil {
		return "", err
	}
	if err := standin.Fill(folder, program, os.Link); err != nil {
		return "", err
	}
	if cached {
		pruneAssets(dir, time.Now())
	}
	return filepath.Abs(folder)
}

// assetsKept is how long the folder of a build stays in the cache directory after its last use.
const assetsKept = 30 * 24 * time.Hour

// pruneAssets notes that a folder is in use, and removes those of other builds that have not been
// used for long. What cannot be removed stays.
func pruneAssets(used string, now time.Time) {
	_ = os.Chtimes(used, now, now)
	parent := filepath.Dir(used)
	entries, err := os.ReadDir(parent)
	if err != nil {
		return
	}
	for _, e := range entries {
		digest, err := hex.DecodeString(e.Name())
		if err != nil || len(digest) != assetsDigest || e.Name() == filepath.Base(used) {
			continue
		}
		if info, err := e.Info(); err == nil && info.IsDir() && now.Sub(info.ModTime()) > assetsKept {
			_ = os.RemoveAll(filepath.Join(parent, e.Name()))
		}
	}
}

// assetsDigest is how many bytes of a program's digest are the name of its folder.
const assetsDigest = 8

// cachedAssets returns the folder for a program in the user's cache directory. Its name is derived
// from the content of the program.
func cachedAssets(program string) (string, error) {
	dir, err := os.UserCacheDir()
	if err != nil {
		return "", fmt.Errorf("%w; name a folder with --dir", err)
	}
	digest, err := standin.Digest(program)
	if err != nil {
		return "", err
	}
	for _, name := range []string{"kinproc", "envtest", hex.EncodeToString(digest[:assetsDigest])} {
		dir = filepath.Join(dir, name)
		if err := makeOwn(dir); err != nil {
			return "", err
		}
	}
	return dir, nil
}

// makeOwn creates a directory, or makes sure that an existing one belongs to the caller and that
// nobody else can write to it: whoever can do so chooses what the caller's tests run.
func makeOwn(dir string) error {
	if err := os.MkdirAll(filepath.Dir(dir), 0o700); err != nil {
		return fmt.Errorf("%w; name a folder with --dir", err)
	}
	if err := os.Mkdir(dir, 0o700); err == nil || !errors.Is(err, fs.ErrExist) {
		return err
	}
	existing, err := private.Open(dir)
	if err != nil {
		return fmt.Errorf("%w; name another folder with --dir", err)
	}
	existing.Close()
	return nil
}

// linkedAssets puts the programs into a folder that ends before this process does.
func linkedAssets(parent string) (string, error) {
	program, err := os.Executable()
	if err != nil {
		return "", err
	}
	dir := filepath.Join(parent, "envtest")
	if err := os.Mkdir(dir, 0o700); err != nil {
		return "", err
	}
	link := os.Symlink
	if runtime.GOOS == "windows" { // where a symbolic link requires a privilege
		link = os.Link
	}
	return dir, standin.Fill(dir, program, link)
}
