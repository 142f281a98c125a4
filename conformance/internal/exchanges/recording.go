package exchanges

import (
	"bytes"
	"compress/gzip"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"strings"
)

// Recording is the content of one file: the exchanges about one resource, or about a feature that
// is not tied to a resource.
type Recording struct {
	Name string `json:"-"`
	// Server is the name and version of the server whose responses are recorded.
	Server string `json:"server"`
	Cases  []Case `json:"cases"`
}

// Case is a sequence of exchanges that does not depend on other cases. Its namespace is created
// first.
type Case struct {
	Name      string    `json:"name"`
	Category  string    `json:"category,omitempty"`
	Namespace string    `json:"namespace,omitempty"`
	Steps     []Step    `json:"steps"`
	Cleanup   []Request `json:"cleanup,omitempty"`
}

// Step is one exchange.
type Step struct {
	Request  Request  `json:"request"`
	Response Response `json:"response"`
}

// Request is a request to send. Its strings may contain ${step:/pointer}, which stands for a value
// in the response of an earlier step.
type Request struct {
	Method  string             `json:"method"`
	Path    string             `json:"path"`
	Headers map[string]*string `json:"headers,omitempty"`
	// Body is sent as JSON, or unchanged if it is a string.
	Body any `json:"body,omitempty"`
	// BodyFrom takes the body from the response of an earlier step.
	BodyFrom *struct {
		Step   int      `json:"step"`
		Remove []string `json:"remove,omitempty"`
		Set    [][2]any `json:"set,omitempty"`
	} `json:"bodyFrom,omitempty"`
	// BodyPad sets a string of the given size in the body.
	BodyPad *struct {
		Pointer string `json:"pointer"`
		Size    int    `json:"size"`
	} `json:"bodyPad,omitempty"`
	// Poll repeats the request until the response has the given code and contains the given subset,
	// for at most Timeout seconds (default 10).
	Poll *struct {
		Code    int      `json:"code,omitempty"`
		Subset  any      `json:"subset,omitempty"`
		Timeout *float64 `json:"timeout,omitempty"`
	} `json:"poll,omitempty"`
}

// Response is a recorded or received response, normalised.
type Response struct {
	Status  int             `json:"status"`
	Headers responseHeaders `json:"headers"`
	Body    any             `json:"body"`
}

type responseHeaders struct {
	ContentType string   `json:"Content-Type,omitempty"`
	Warnings    []string `json:"Warning,omitempty"`
}

// Load reads all recordings (*.json.gz) of a directory in the order of their file names.
func Load(dir fs.FS) ([]*Recording, error) {
	files, err := fs.Glob(dir, "*.json.gz")
	if err != nil {
		return nil, err
	}
	recordings := make([]*Recording, 0, len(files))
	for _, file := range files {
		r, err := load(dir, file)
		if err != nil {
			return nil, fmt.Errorf("read recording %s: %w", file, err)
		}
		recordings = append(recordings, r)
	}
	return recordings, nil
}

func load(dir fs.FS, file string) (*Recording, error) {
	packed, err := fs.ReadFile(dir, file)
	if err != nil {
		return nil, err
	}
	unpack, err := gzip.NewReader(bytes.NewReader(packed))
	if err != nil {
		return nil, err
	}
	data, err := io.ReadAll(unpack)
	if err != nil {
		return nil, err
	}
	r := &Recording{Name: strings.TrimSuffix(path.Base(file), ".json.gz")}
	return r, decode(data, r)
}

// Save writes the recording into a directory.
func (r *Recording) Save(dir string) error {
	var packed bytes.Buffer
	pack := gzip.NewWriter(&packed)
	encoder := json.NewEncoder(pack)
	encoder.SetEscapeHTML(false)
	if err := errors.Join(encoder.Encode(r), pack.Close()); err != nil {
		return fmt.Errorf("encode recording %s: %w", r.Name, err)
	}
	return os.WriteFile(filepath.Join(dir, r.Name+".json.gz"), packed.Bytes(), 0o644)
}

// decode decodes JSON, keeping numbers as they are written: 1 is not 1.0.
func decode(data []byte, into any) error {
	d := json.NewDecoder(bytes.NewReader(data))
	d.UseNumber()
	return d.Decode(into)
}
