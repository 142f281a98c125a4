package exchanges

import (
	"bytes"
	"compress/gzip"
	"encoding/json"
	"fmt"
	"io"
	"io/fs"
	"path"
	"strings"
)

// Recording is one file: the exchanges about one resource, or about what belongs to none.
type Recording struct {
	Name  string `json:"-"`
	Cases []Case `json:"cases"`
}

// Case is a sequence of exchanges that depends on no other. Its namespace is made first.
type Case struct {
	Name      string    `json:"name"`
	Namespace string    `json:"namespace"`
	Steps     []Step    `json:"steps"`
	Cleanup   []Request `json:"cleanup"`
}

// Step is an exchange.
type Step struct {
	Request  Request  `json:"request"`
	Response Response `json:"response"`
}

// Request is what is sent. Strings in it may hold ${step:/pointer}: what that step was answered.
type Request struct {
	Method  string             `json:"method"`
	Path    string             `json:"path"`
	Headers map[string]*string `json:"headers"`
	// Body is sent as JSON, or as it is when it is a string.
	Body any `json:"body"`
	// BodyFrom takes the body from an earlier answer.
	BodyFrom *struct {
		Step   int      `json:"step"`
		Remove []string `json:"remove"`
		Set    [][2]any `json:"set"`
	} `json:"bodyFrom"`
	// BodyPad sets a string of that size in the body.
	BodyPad *struct {
		Pointer string `json:"pointer"`
		Size    int    `json:"size"`
	} `json:"bodyPad"`
	// Poll repeats the request until it is answered so, at most Timeout seconds (10).
	Poll *struct {
		Code    int      `json:"code"`
		Subset  any      `json:"subset"`
		Timeout *float64 `json:"timeout"`
	} `json:"poll"`
}

// Response is what was answered, or is: normalised in both cases.
type Response struct {
	Status  int             `json:"status"`
	Headers responseHeaders `json:"headers"`
	Body    any             `json:"body"`
}

type responseHeaders struct {
	ContentType string   `json:"Content-Type"`
	Warnings    []string `json:"Warning"`
}

// Load reads all recordings (*.json.gz) of a directory in the order of their names.
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

// decode keeps numbers as they are written: 1 is not 1.0.
func decode(data []byte, into any) error {
	d := json.NewDecoder(bytes.NewReader(data))
	d.UseNumber()
	return d.Decode(into)
}
