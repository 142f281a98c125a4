//go:build unix

package sandbox

import (
	"os"
	"path/filepath"
	"syscall"
	"testing"
)

func TestSandboxIsTheCallersOwn(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		change func(t *testing.T, dir string)
		want   string
	}{
		"directory of a group": {chmod(".", 0o770), ".kinproc has mode 0770, so others may write to it"},
		"directory of all":     {chmod(".", 0o777|os.ModeSticky), "so others may write to it"},
		"file of a group":      {chmod(KubeconfigName, 0o620), "kubeconfig has mode 0620"},
		"file of all":          {chmod(KubeconfigName, 0o602), "kubeconfig has mode 0602"},
		"certificate of all":   {chmod("pki/ca.crt", 0o666), "pki/ca.crt has mode 0666"},
		"certificates of all":  {chmod("pki", 0o777), "pki has mode 0777"},
		"directory is a link": {func(t *testing.T, dir string) {
			must(t, os.Rename(dir, dir+".away"))
			must(t, os.Symlink(dir+".away", dir))
		}, ".kinproc is a symbolic link, not a directory"},
		"file is a link": {func(t *testing.T, dir string) {
			must(t, os.Rename(filepath.Join(dir, KubeconfigName), filepath.Join(dir, "other")))
			must(t, os.Symlink("other", filepath.Join(dir, KubeconfigName)))
		}, "kubeconfig is a symbolic link, not a file"},
		"certificate is a link": {func(t *testing.T, dir string) {
			must(t, os.Remove(filepath.Join(dir, "pki", "ca.crt")))
			must(t, os.Symlink("../kubeconfig", filepath.Join(dir, "pki", "ca.crt")))
		}, "pki/ca.crt is a symbolic link, not a file"},
		"certificates are a link": {func(t *testing.T, dir string) {
			must(t, os.Rename(filepath.Join(dir, "pki"), filepath.Join(dir, "away")))
			must(t, os.Symlink("away", filepath.Join(dir, "pki")))
		}, "pki is a symbolic link, not a directory"},
		"file is a pipe": {func(t *testing.T, dir string) {
			must(t, os.Remove(filepath.Join(dir, KubeconfigName)))
			must(t, syscall.Mkfifo(filepath.Join(dir, KubeconfigName), 0o600))
		}, "kubeconfig is a named pipe, not a file"},
		"directory is a file": {func(t *testing.T, dir string) {
			must(t, os.RemoveAll(dir))
			must(t, os.WriteFile(dir, nil, 0o600))
		}, ".kinproc is a file, not a directory"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			dir := sandboxDir(t,
				written(`server: "https://127.0.0.1:6443", certificate-authority: pki/ca.crt`,
					trustedUser, "", ""))
			c.change(t, dir)
			wantRefused(t, dir, c.want)
		})
	}
	if os.Geteuid() != 0 {
		return // the rest requires root
	}
	for _, name := range []string{".", KubeconfigName, "pki", "pki/ca.crt"} {
		dir := sandboxDir(t,
			written(`server: "https://127.0.0.1:6443", certificate-authority: pki/ca.crt`,
				trustedUser, "", ""))
		must(t, os.Chown(filepath.Join(dir, name), 12345, 12345))
		wantRefused(t, dir,
			filepath.Base(filepath.Join(dir, name))+" belongs to user 12345, but you are user 0")
	}
}

func chmod(name string, mode os.FileMode) func(*testing.T, string) {
	return func(t *testing.T, dir string) { must(t, os.Chmod(filepath.Join(dir, name), mode)) }
}
