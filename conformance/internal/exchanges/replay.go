package exchanges

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"time"
)

// Target is a server that requests are sent to.
type Target struct {
	// URL is the server's URL, without a trailing slash.
	URL string
	// Client trusts the server and does not authenticate on its own.
	Client *http.Client
	// Token is the bearer token of a user in system:masters.
	Token string
	// Wording, if set, is called with each difference in the text of a cause, which is not among
	// the differences of a response.
	Wording func(file, difference string)
}

// Difference is an exchange whose response differs from the recording.
type Difference struct {
	File, Case string
	Step       int
	// Request is the method and the path.
	Request string
	// What describes the differences, one per element.
	What []string
	// Answer is the response, normalised.
	Answer *Response
}

// String returns the difference as one line.
func (d *Difference) String() string {
	return fmt.Sprintf("%s/%s #%d %s: %s", d.File, d.Case, d.Step, d.Request,
		strings.Join(d.What, "; "))
}

const (
	pollInterval       = 50 * time.Millisecond
	defaultPollTimeout = 10 * time.Second
)

// Replay sends a recording's requests, case by case, and returns the differences and the number of
// exchanges. It returns an error if a connection failed.
func (r *Recording) Replay(
	ctx context.Context, target Target,
) (differences []*Difference, exchanges int, err error) {
	return r.replay(ctx, target, false)
}

// Record replays a recording, and replaces the responses that differ by what the target answers. It
// returns the differences. It keeps responses that differ in nothing but what is not compared.
func (r *Recording) Record(ctx context.Context, target Target) ([]*Difference, error) {
	differences, _, err := r.replay(ctx, target, true)
	return differences, err
}

func (r *Recording) replay(
	ctx context.Context, target Target, record bool,
) (differences []*Difference, exchanges int, err error) {
	target = target.withoutRedirects()
	for i := range r.Cases {
		c := &replay{
			file: r.Name, target: target, names: normaliser{revisions: map[string]string{}},
			record: record,
		}
		found, err := c.run(ctx, &r.Cases[i])
		for _, d := range found {
			d.File = r.Name
		}
		differences, exchanges = append(differences, found...), exchanges+len(c.live)
		if err != nil {
			return differences, exchanges,
				fmt.Errorf("%s/%s #%d: %w", r.Name, r.Cases[i].Name, len(c.live), err)
		}
	}
	return differences, exchanges, nil
}

// replay is the state of replaying one case.
type replay struct {
	file   string
	target Target
	live   []any // response bodies of the steps so far, not normalised
	names  normaliser
	record bool // whether responses replace recorded ones that differ
}

func (c *replay) run(ctx context.Context, recorded *Case) (differences []*Difference, err error) {
	if recorded.Namespace != "" {
		namespace := &Request{Method: http.MethodPost, Path: "/api/v1/namespaces", Body: map[string]any{
			"apiVersion": "v1", "kind": "Namespace", "metadata": map[string]any{"name": recorded.Namespace},
		}}
		if _, _, err := c.send(ctx, namespace); err != nil {
			return nil, err
		}
	}
	defer func() {
		for i := range recorded.Cleanup {
			_, _, cleanupErr := c.send(ctx, &recorded.Cleanup[i])
			err = errors.Join(err, cleanupErr)
		}
	}()
	if err := beginSecond(ctx); err != nil {
		return nil, err
	}
	for i := range recorded.Steps {
		step := &recorded.Steps[i]
		answer, body, err := c.poll(ctx, &step.Request)
		if err != nil {
			return differences, err
		}
		c.live = append(c.live, body)
		answer.Body = c.names.value(body)
		if c.target.Wording != nil {
			for _, w := range wordings(step.Response.Body, answer.Body) {
				c.target.Wording(c.file, fmt.Sprintf("%s #%d %s", recorded.Name, i, w))
			}
		}
		what := compare(&step.Response, answer)
		if c.record {
			what = append(what, texts(&step.Response, answer)...)
		}
		if len(what) > 0 {
			differences = append(differences, &Difference{
				Case:    recorded.Name,
				Step:    i,
				Request: step.Request.Method + " " + step.Request.Path,
				What:    what,
				Answer:  answer,
			})
			if c.record {
				step.Response = *answer
			}
		}
	}
	return differences, nil
}

// beginSecond waits for the next second unless enough of the current one is left: servers sort
// managed fields by whole seconds, so the steps of a case should fall into the same second.
func beginSecond(ctx context.Context) error {
	const latest = 600 * time.Millisecond
	into := time.Duration(time.Now().Nanosecond())
	if into <= latest {
		return nil
	}
	return wait(ctx, time.Second-into+20*time.Millisecond)
}

func wait(ctx context.Context, d time.Duration) error {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

func (c *replay) poll(ctx context.Context, r *Request) (*Response, any, error) {
	if r.Poll == nil {
		return c.send(ctx, r)
	}
	timeout := defaultPollTimeout
	if r.Poll.Timeout != nil {
		timeout = time.Duration(*r.Poll.Timeout * float64(time.Second))
	}
	deadline, began := time.Now().Add(timeout), time.Now().Unix()
	for {
		answer, body, err := c.send(ctx, r)
		if err != nil {
			return nil, nil, err
		}
		done := (r.Poll.Code == 0 || r.Poll.Code == answer.Status) &&
			(r.Poll.Subset == nil || contains(body, r.Poll.Subset))
		if done || time.Now().After(deadline) {
			if time.Now().Unix() != began {
				err = beginSecond(ctx)
			}
			return answer, body, err
		}
		if err := wait(ctx, pollInterval); err != nil {
			return nil, nil, err
		}
	}
}

func (c *replay) send(ctx context.Context, r *Request) (*Response, any, error) {
	filled := r.resolve(c.target.Token, c.live)
	request, err := http.NewRequestWithContext(ctx, filled.method, c.target.URL+filled.path,
		strings.NewReader(filled.body))
	if err != nil {
		return nil, nil, err
	}
	request.Header = filled.header
	response, err := c.target.Client.Do(request)
	if err != nil {
		return nil, nil, err
	}
	defer response.Body.Close()
	data, err := io.ReadAll(response.Body)
	if err != nil {
		return nil, nil, err
	}
	answer := &Response{Status: response.StatusCode}
	answer.Headers.ContentType = response.Header.Get("Content-Type")
	for _, w := range response.Header.Values("Warning") {
		answer.Headers.Warnings = append(answer.Headers.Warnings, normaliseText(w))
	}
	return answer, parse(answer.Headers.ContentType, data), nil
}

// parse returns a body in the form that recordings use.
func parse(contentType string, data []byte) any {
	if bytes.HasPrefix(data, []byte("k8s\x00")) {
		return "<protobuf>"
	}
	text := strings.ToValidUTF8(string(data), "\uFFFD")
	if !strings.Contains(contentType, "json") || strings.TrimSpace(text) == "" {
		return text
	}
	var documents []any
	d := json.NewDecoder(strings.NewReader(text))
	d.UseNumber()
	for {
		var document any
		err := d.Decode(&document)
		switch {
		case errors.Is(err, io.EOF) && len(documents) == 1:
			return documents[0]
		case errors.Is(err, io.EOF):
			return map[string]any{"stream": documents}
		case err != nil:
			return text
		}
		documents = append(documents, document)
	}
}
