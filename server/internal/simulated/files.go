package simulated

import (
	"archive/tar"
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"path"
	"slices"
	"strings"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/kinproc/kinproc/chain/core"
)

const (
	// maxPodFiles is how much may be copied into a pod, and maxFiles how much is kept of all pods,
	// in bytes.
	maxPodFiles = 1 << 20
	maxFiles    = 32 << 20
	// fileSize is what a file takes besides its name and data, and more than a pod does.
	fileSize = 512
)

// files are what clients have copied into the containers of simulated pods. They are kept in
// memory. If there are too many, those of the pods go into which nothing was copied for longest.
type files struct {
	mu   sync.Mutex
	pods []podFiles // guarded by mu; the one written last is at the end
	size int        // guarded by mu; of all pods, in bytes
	// arriving is how much of the archives is held that are being read, in bytes. mu guards it.
	arriving int
}

// podFiles are the files of a pod, by container and path. Once others can see it, a map does not
// change.
type podFiles struct {
	pod  types.UID
	kept map[string]file
	size int
}

// file is a file or a directory.
type file struct {
	isDir    bool
	mode     int64
	modified time.Time
	data     string
}

// of returns the files of a pod.
func (f *files) of(pod types.UID) map[string]file {
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, p := range f.pods {
		if p.pod == pod {
			return p.kept
		}
	}
	return nil
}

var errFiles = fmt.Errorf("a simulated pod keeps files of at most %d MiB", maxPodFiles>>20)

// arrive notes that so many more bytes are held, or fewer, while an archive is read.
func (f *files) arrive(bytes int) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	if bytes > 0 && f.arriving+bytes > maxFiles {
		return fmt.Errorf("files of more than %d MiB are being copied into simulated pods at "+
			"once; try again", maxFiles>>20)
	}
	f.arriving += bytes
	return nil
}

// add adds files to those of a pod.
func (f *files) add(pod types.UID, added map[string]file) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	next := podFiles{pod: pod}
	i := slices.IndexFunc(f.pods, func(p podFiles) bool { return p.pod == pod })
	if i >= 0 {
		next.kept = maps.Clone(f.pods[i].kept)
	} else {
		next.kept = map[string]file{}
	}
	maps.Copy(next.kept, added)
	for name, one := range next.kept {
		next.size += fileSize + len(name) + len(one.data)
	}
	if next.size > maxPodFiles {
		return errFiles
	}
	if i >= 0 {
		f.size -= f.pods[i].size
		f.pods = slices.Delete(f.pods, i, i+1)
	}
	f.pods, f.size = append(f.pods, next), f.size+next.size
	for f.size > maxFiles {
		f.size -= f.pods[0].size
		f.pods = slices.Delete(f.pods, 0, 1)
	}
	return nil
}

// disk is where a container of a pod has its files.
type disk struct {
	files     *files
	pod       types.UID
	container *corev1.Container
}

// key returns the key of a file in the files of the pod. No container has a colon in its name.
func (d disk) key(name string) string { return d.container.Name + ":" + d.absolute(name) }

func (d disk) absolute(name string) string {
	if !path.IsAbs(name) {
		name = path.Join("/", d.container.WorkingDir, name)
	}
	return path.Clean(name)
}

// usual are directories that nearly every image has.
var usual = []string{
	"/", "/etc", "/home", "/mnt", "/opt", "/root", "/run", "/srv", "/tmp", "/usr", "/var",
	"/var/lib", "/var/log", "/var/tmp",
}

// isDir reports whether there is a directory: a usual one, that of a volume, the working directory,
// or one into which something was copied.
func (d disk) isDir(name string) bool {
	name = d.absolute(name)
	if slices.Contains(usual, name) || name == d.absolute(".") ||
		slices.ContainsFunc(d.container.VolumeMounts, func(m corev1.VolumeMount) bool {
			return path.Clean(m.MountPath) == name
		}) {
		return true
	}
	kept := d.files.of(d.pod)
	for key := range kept {
		if strings.HasPrefix(key, d.key(name)+"/") {
			return true
		}
	}
	return kept[d.key(name)].isDir
}

// find returns what a command does that reads copied files: test, cat, and tar, if that makes an
// archive of one file or directory. The names of all files must be known.
func (d disk) find(words []string) (command, bool) {
	if len(words) == 3 && words[1] == "-c" && isShell(words[0]) {
		return d.find(strings.Fields(unquote(words[2])))
	}
	if len(words) == 0 {
		return command{}, false
	}
	kept := d.files.of(d.pod)
	switch path.Base(words[0]) {
	case "test":
		if len(words) != 3 || !slices.Contains([]string{"-d", "-e", "-f"}, words[1]) {
			return command{}, false
		}
		found, isFile := kept[d.key(words[2])]
		isFile = isFile && !found.isDir
		if words[1] != "-d" && isFile || words[1] != "-f" && d.isDir(words[2]) {
			return command{}, true
		}
		return command{Exit: 1}, true
	case "cat":
		var all []file
		for _, name := range words[1:] {
			found, ok := kept[d.key(name)]
			if !ok || found.isDir {
				return command{}, false
			}
			all = append(all, found)
		}
		return command{write: func(w io.Writer) error {
			for _, f := range all {
				if err := print(w, f.data); err != nil {
					return err
				}
			}
			return nil
		}}, len(words) > 1
	case "tar":
		if t := parseTar(words); t.creates && len(t.names) == 1 {
			return d.archive(d.absolute(t.dir), t.names[0], kept), true
		}
	}
	return command{}, false
}

// archive returns the command that prints an archive of a file, or of what is below a directory.
func (d disk) archive(dir, name string, kept map[string]file) command {
	from := name
	if !path.IsAbs(from) {
		from = path.Join(dir, from)
	}
	from = d.key(from)
	members := map[string]file{}
	for key, f := range kept {
		below, ok := strings.CutPrefix(key, strings.TrimSuffix(from, "/")+"/")
		if ok || key == from {
			if !ok {
				below = ""
			}
			members[path.Join(strings.TrimLeft(path.Clean(name), "/"), below)] = f // as tar does
		}
	}
	if len(members) == 0 {
		return command{
			Stderr: "tar: " + name + ": nothing of that name was copied into this simulated pod\n",
			Exit:   tarFailed,
		}
	}
	return command{write: func(w io.Writer) error {
		archive := tar.NewWriter(w)
		for _, member := range slices.Sorted(maps.Keys(members)) {
			f := members[member]
			h := &tar.Header{
				Name: member, Typeflag: tar.TypeReg, Mode: f.mode, ModTime: f.modified,
				Size: int64(len(f.data)),
			}
			if f.isDir {
				h.Typeflag, h.Name = tar.TypeDir, h.Name+"/"
			}
			if err := archive.WriteHeader(h); err != nil {
				return err
			}
			if err := print(archive, f.data); err != nil {
				return err
			}
		}
		return archive.Close()
	}}
}

// tarFailed is the exit code of tar when it fails.
const tarFailed = 2

// tarCommand is what a command line of tar says.
type tarCommand struct {
	extracts, creates bool
	dir               string // for -C
	names             []string
}

// parseTar reads a command line of tar, such as "tar xf - -C /tmp" or "tar cf - /tmp/a". It neither
// extracts nor creates if there is more in it than that, or no archive in the standard input or
// output.
func parseTar(words []string) (t tarCommand) {
	var mode string
	dir := "."
	for i := 1; i < len(words); i++ {
		word := words[i]
		switch last := i+1 == len(words); {
		case strings.HasPrefix(word, "--no-same-"):
		case word == "-C" && !last:
			dir = words[i+1]
			i++
		case mode == "" && !last && words[i+1] == "-":
			mode = strings.TrimPrefix(word, "-")
			i++
		case strings.HasPrefix(word, "-"):
			return tarCommand{}
		default:
			t.names = append(t.names, word)
		}
	}
	letters, archived := strings.CutSuffix(mode, "f")
	if !archived || strings.Trim(letters, "cmopvx") != "" {
		return tarCommand{}
	}
	t.dir = dir
	t.extracts, t.creates = strings.Contains(letters, "x"), strings.Contains(letters, "c")
	return t
}

// extracts returns what keeps the files of an archive that a client sends, if that is the command.
func (d disk) extracts(words []string) (core.Run, bool) {
	if len(words) == 0 || path.Base(words[0]) != "tar" {
		return nil, false
	}
	t := parseTar(words)
	if !t.extracts || t.creates || len(t.names) > 0 {
		return nil, false
	}
	return func(_ context.Context, s core.Streams) error {
		err := errors.New("there is no archive in the standard input")
		if s.Stdin != nil {
			err = d.extract(d.absolute(t.dir), s.Stdin, s.Stderr)
		}
		if err != nil {
			_, _ = fmt.Fprintf(lines(s.Stderr, s.TTY), "tar: %s\n", err)
			return &core.Exit{Code: tarFailed}
		}
		return nil
	}, true
}

// extract keeps the files of an archive, all or none of them.
func (d disk) extract(dir string, in io.Reader, warnings io.Writer) error {
	added, held := map[string]file{}, 0
	defer func() { _ = d.files.arrive(-held) }() // fewer are always allowed
	archive := tar.NewReader(in)
	for {
		h, err := archive.Next()
		if errors.Is(err, io.EOF) {
			return d.files.add(d.pod, added)
		}
		if err != nil {
			return fmt.Errorf("read the archive: %w", err)
		}
		key := d.key(path.Join(dir, path.Join("/", h.Name)))
		f := file{mode: h.Mode, modified: h.ModTime, isDir: h.Typeflag == tar.TypeDir}
		if !f.isDir && h.Typeflag != tar.TypeReg {
			_, _ = fmt.Fprintf(warnings, "tar: %s: left out: a simulated pod keeps only files and "+
				"directories\n", h.Name)
			continue
		}
		if h.Size > maxPodFiles {
			return errFiles
		}
		size := fileSize + len(key) + int(h.Size)
		if held+size > maxPodFiles {
			return errFiles
		}
		if err := d.files.arrive(size); err != nil {
			return err
		}
		held += size
		data, err := io.ReadAll(archive)
		if err != nil {
			return fmt.Errorf("read %s: %w", h.Name, err)
		}
		f.data = string(data)
		added[key] = f
	}
}
