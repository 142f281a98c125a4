package sandbox

import (
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"
	clientcmdv1 "k8s.io/client-go/tools/clientcmd/api/v1"

	"github.com/kinproc/kinproc/chain/documents"
	"github.com/kinproc/kinproc/server/cli/internal/origin"
	"github.com/kinproc/kinproc/server/cli/internal/private"
	"github.com/kinproc/kinproc/server/internal/auth/pki"
)

// Entries are a control plane's cluster, user and context in a kubeconfig. All three have the same
// name.
type Entries struct {
	name      string
	directory string // the absolute path of the control plane's folder
}

// EntriesOf returns the entries of a sandbox, by its name and the absolute path of its folder.
func EntriesOf(sandbox, directory string) Entries {
	return Entries{name: "kinproc-" + sandbox, directory: directory}
}

// Write writes the kubeconfig in the control plane's folder, which has no other entries, and
// returns its path.
func (e Entries) Write(from *clientcmdapi.Config) (path string, err error) {
	config := clientcmdapi.NewConfig()
	e.add(config, from)
	if err := e.sign(config); err != nil {
		return "", err
	}
	path = filepath.Join(e.directory, KubeconfigName)
	return path, pki.WriteKubeconfig(path, config)
}

// Check returns an error if the entries cannot be added to the kubeconfig at path.
func (e Entries) Check(path string) error {
	config, err := loadKubeconfig(path)
	if err != nil {
		return err
	}
	return e.check(path, config)
}

// check returns an error if the kubeconfig has entries of the same name that belong to somebody
// else.
func (e Entries) check(path string, config *clientcmdapi.Config) error {
	for kind, extensions := range e.extensions(config) {
		m, ok := readMark(extensions)
		if !ok {
			return fmt.Errorf("--kubeconfig: %s has a %s %q that kinproc did not write; name another file, "+
				"or this sandbox with --name", path, kind, e.name)
		}
		if m.Directory == "" || m.Directory == e.directory || abandoned(m.Directory) {
			continue
		}
		return fmt.Errorf(
			"--kubeconfig: %s has a %s %q of the sandbox in %s; give this one another name with --name",
			path, kind, e.name, m.Directory)
	}
	return nil
}

// extensions returns the extensions of the existing entries, by the kind of entry.
func (e Entries) extensions(config *clientcmdapi.Config) map[string]map[string]runtime.Object {
	all := map[string]map[string]runtime.Object{}
	if cluster := config.Clusters[e.name]; cluster != nil {
		all["cluster"] = cluster.Extensions
	}
	if user := config.AuthInfos[e.name]; user != nil {
		all["user"] = user.Extensions
	}
	if context := config.Contexts[e.name]; context != nil {
		all["context"] = context.Extensions
	}
	return all
}

// abandoned reports whether a folder's control plane is gone for good: either the folder was
// removed, or the control plane was ephemeral and was killed.
func abandoned(directory string) bool {
	if _, err := os.Lstat(directory); err != nil {
		return true
	}
	runs, known := held(directory)
	return known && !runs && inEphemeral(directory)
}

// add copies the current context of from, with its cluster and user, into config and makes it the
// current context there.
func (e Entries) add(config, from *clientcmdapi.Config) {
	marked := mark{WrittenBy: "kinproc", Directory: e.directory}
	current := from.Contexts[from.CurrentContext]
	cluster, user := from.Clusters[current.Cluster].DeepCopy(),
		from.AuthInfos[current.AuthInfo].DeepCopy()
	cluster.Extensions, user.Extensions = marked.extensions(), marked.extensions()
	config.Clusters[e.name] = cluster
	config.AuthInfos[e.name] = user
	if marked.Previous = config.CurrentContext; marked.Previous == e.name {
		marked.Previous = e.previous(config)
	}
	config.Contexts[e.name] = &clientcmdapi.Context{
		Cluster:    e.name,
		AuthInfo:   e.name,
		Extensions: marked.extensions(),
	}
	config.CurrentContext = e.name
}

// sign adds the MAC to the cluster in the folder's own kubeconfig, if the folder bears a mark.
func (e Entries) sign(config *clientcmdapi.Config) error {
	if _, err := os.Lstat(filepath.Join(e.directory, origin.Name)); errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	dir, err := private.Open(e.directory)
	if err != nil {
		return err
	}
	defer dir.Close()
	cluster := config.Clusters[e.name]
	text, err := clusterText(cluster)
	if err != nil {
		return err
	}
	m := mark{WrittenBy: "kinproc", Directory: e.directory}
	m.MAC = origin.Sign(dir, ".", origin.Cluster, text)
	maps.Copy(cluster.Extensions, m.extensions())
	return nil
}

// previous returns what the current context was before the entries were added.
func (e Entries) previous(config *clientcmdapi.Config) string {
	if context := config.Contexts[e.name]; context != nil {
		m, _ := readMark(context.Extensions)
		return m.Previous
	}
	return ""
}

// loadKubeconfig reads a user's kubeconfig. It returns an empty configuration if the file does not
// exist, and an error if the file has something that would be lost if it were written again.
func loadKubeconfig(path string) (*clientcmdapi.Config, error) {
	data, err := os.ReadFile(path)
	if errors.Is(err, fs.ErrNotExist) {
		return clientcmdapi.NewConfig(), nil
	}
	if err == nil {
		err = checkWhole(data) // whose decoder has limits, unlike that of Load
	}
	var config *clientcmdapi.Config
	if err == nil {
		config, err = clientcmd.Load(data)
	}
	if of := new(fs.PathError); errors.As(err, &of) {
		err = of.Err // which path and which function is known
	}
	if err != nil {
		return nil, fmt.Errorf("--kubeconfig: read %s: %w; name a kubeconfig to add to, "+
			"or a file that does not exist", path, err)
	}
	return config, nil
}

// checkWhole returns an error unless data is one kubeconfig and nothing else. The library takes any
// YAML for a kubeconfig, and leaves out what it does not know.
func checkWhole(data []byte) error {
	number := 0
	for document, err := range documents.Split(data) {
		number++
		if err == nil {
			err = documents.DecodeStrict(document, &clientcmdv1.Config{})
		}
		if err == nil && number > 1 {
			err = errors.New("there is more than one document")
		}
		if err != nil {
			return fmt.Errorf("it is not a plain kubeconfig: %w", err)
		}
	}
	return nil
}

// AddTo adds the entries to the kubeconfig at path. Other content of the file stays, and a symbolic
// link stays a link.
func (e Entries) AddTo(path string, from *clientcmdapi.Config) error {
	return changeKubeconfig(path, func(config *clientcmdapi.Config) error {
		if err := e.check(path, config); err != nil {
			return err
		}
		e.add(config, from)
		return nil
	})
}

// RemoveFrom removes the entries from the kubeconfig at path, unless somebody else has written
// entries of the same name since. It restores the previous current context, and for sandboxes that
// were added later, it is the previous one from now on.
func (e Entries) RemoveFrom(path string) error {
	return changeKubeconfig(path, func(config *clientcmdapi.Config) error {
		e.remove(config)
		return nil
	})
}

// removeEntriesOf removes the entries of a folder from a kubeconfig, and returns the names of the
// contexts.
func removeEntriesOf(directory, path string) (contexts []string, err error) {
	if _, err := os.Lstat(path); errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	err = changeKubeconfig(path, func(config *clientcmdapi.Config) error {
		for _, name := range slices.Sorted(maps.Keys(config.Contexts)) {
			m, ok := readMark(config.Contexts[name].Extensions)
			if e := (Entries{name, directory}); ok && m.Directory == directory && e.remove(config) {
				contexts = append(contexts, name)
			}
		}
		return nil
	})
	return contexts, err
}

// remove reports whether it has removed the entries.
func (e Entries) remove(config *clientcmdapi.Config) bool {
	for _, extensions := range e.extensions(config) {
		if m, ok := readMark(extensions); !ok || m.Directory != e.directory {
			return false
		}
	}
	before := e.previous(config)
	delete(config.Clusters, e.name)
	delete(config.AuthInfos, e.name)
	delete(config.Contexts, e.name)
	for _, context := range config.Contexts {
		if m, ok := readMark(context.Extensions); ok && m.Previous == e.name {
			m.Previous = before
			maps.Copy(context.Extensions, m.extensions())
		}
	}
	if config.CurrentContext == e.name {
		config.CurrentContext = ""
		if config.Contexts[before] != nil {
			config.CurrentContext = before
		}
	}
	return true
}

// changeKubeconfig changes the kubeconfig at path. Unlike clientcmd.ModifyConfig, it replaces the
// file in one step, so that a program that reads the file meanwhile sees all of it.
func changeKubeconfig(path string, change func(*clientcmdapi.Config) error) error {
	target, err := followLinks(path)
	if err != nil {
		return fmt.Errorf("--kubeconfig: %w", err)
	}
	unlock, err := lockKubeconfig(target)
	if err != nil {
		return fmt.Errorf(
			"--kubeconfig: %w; name a file in a directory that exists and can be written to", err)
	}
	defer unlock()
	config, err := loadKubeconfig(path)
	if err != nil {
		return err
	}
	if err := change(config); err != nil {
		return err
	}
	if err := pki.WriteKubeconfig(target, config); err != nil {
		return fmt.Errorf(
			"--kubeconfig: %w; name a file in a directory that exists and can be written to", err)
	}
	return nil
}

// kubeconfigLockPatience is how long to wait for other programs that are changing a kubeconfig.
const kubeconfigLockPatience = 5 * time.Second

// lockKubeconfig keeps other programs from changing a kubeconfig. Like kubectl config, it creates a
// lock file: the kubeconfig's name with the suffix ".lock".
func lockKubeconfig(path string) (unlock func(), err error) {
	lock := path + ".lock"
	for giveUp := time.Now().Add(kubeconfigLockPatience); ; time.Sleep(10 * time.Millisecond) {
		f, err := os.OpenFile(lock, os.O_CREATE|os.O_EXCL, 0o600)
		if err == nil {
			f.Close()
			return func() { _ = os.Remove(lock) }, nil
		}
		if !errors.Is(err, fs.ErrExist) {
			if reason := new(fs.PathError); errors.As(err, &reason) {
				err = reason.Err // which the name of the lock file would only obscure
			}
			return nil, fmt.Errorf("write %s: %w", path, err)
		}
		if time.Now().After(giveUp) {
			return nil, fmt.Errorf("another program is changing %s; if that is not so, remove %s",
				path, lock)
		}
	}
}

// maxLinks is Linux's limit of symbolic links in a path.
const maxLinks = 40

// followLinks returns the file that a path leads to, which need not exist.
func followLinks(path string) (string, error) {
	for range maxLinks {
		target, err := os.Readlink(path)
		if err != nil {
			return path, nil // not a link; other problems show when the file is written
		}
		if !filepath.IsAbs(target) {
			// Do not clean the path: the directory may itself be a link.
			target = filepath.Dir(path) + string(filepath.Separator) + target
		}
		path = target
	}
	return "", fmt.Errorf("%s: more than %d symbolic links", path, maxLinks)
}
