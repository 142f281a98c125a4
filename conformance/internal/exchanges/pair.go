package exchanges

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"sync"
	"unicode"

	"sigs.k8s.io/yaml"
)

// Pair is two servers that are sent the same requests. The second server's response is the one
// expected from the first server.
//
// A Pair remembers all responses: later requests may refer to them, and they show which writes
// changed nothing.
type Pair struct {
	sides [2]replay
}

// NewPair returns a Pair of two servers.
func NewPair(first, second Target) *Pair {
	p := &Pair{}
	for i, target := range []Target{first, second} {
		p.sides[i] = replay{
			target: target.withoutRedirects(),
			names:  normaliser{revisions: map[string]string{}},
		}
	}
	return p
}

// Answers holds the responses of the two servers to one request.
type Answers struct {
	// First and Second are the normalised responses. A response is nil if the connection broke.
	First, Second *Response
	// What describes the differences, one per element.
	What []string
	// Broken is why a response is missing.
	Broken error
	// Curl is the request to the first server as a command line, without the token. A long body is
	// cut off.
	Curl string
}

// Ask sends a request to both servers at once. It returns an error only if ctx is done.
func (p *Pair) Ask(ctx context.Context, r *Request) (Answers, error) {
	var responses [2]*Response
	var bodies [2]any
	var failures [2]error
	sent := r.resolve("", p.sides[0].live)
	var both sync.WaitGroup
	for i := range p.sides {
		both.Go(func() { responses[i], bodies[i], failures[i] = p.sides[i].poll(ctx, r) })
	}
	both.Wait()
	if ctx.Err() != nil {
		return Answers{}, context.Cause(ctx)
	}
	for i := range p.sides {
		p.sides[i].live = append(p.sides[i].live, bodies[i])
		if responses[i] != nil {
			responses[i].Body = p.sides[i].names.value(structured(responses[i].Headers.ContentType,
				bodies[i]))
		}
	}
	answers := Answers{
		First:  responses[0],
		Second: responses[1],
		Broken: errors.Join(failures[:]...),
		Curl:   sent.curl(),
	}
	switch {
	case answers.First == nil && answers.Second == nil:
	case answers.First == nil || answers.Second == nil:
		answers.What = []string{"answer: " + answers.Broken.Error()}
	default:
		answers.What = compare(answers.Second, answers.First)
	}
	return answers, nil
}

// structured returns a YAML body in the form that it would have as JSON, and any other body
// unchanged.
func structured(contentType string, body any) any {
	text, ok := body.(string)
	if !ok || !strings.Contains(contentType, "yaml") {
		return body
	}
	data, err := yaml.YAMLToJSON([]byte(text))
	if err != nil {
		return body
	}
	return parse("application/json", data)
}

// curl returns the request as a command line in which $SERVER stands for the server's URL.
func (r resolved) curl() string {
	const most = 4000
	line := []string{"curl -k -X", quote(r.method), `"$SERVER"` + quote(r.path)}
	for _, name := range slices.Sorted(maps.Keys(r.header)) {
		for _, value := range r.header[name] {
			line = append(line, "-H", quote(name+": "+value))
		}
	}
	switch {
	case len(r.body) > most:
		line = append(line, "--data-binary", quote(r.body[:most]),
			fmt.Sprintf("# and %d more bytes", len(r.body)-most))
	case r.body != "":
		line = append(line, "--data-binary", quote(r.body))
	}
	return strings.Join(line, " ")
}

// quote quotes s for a shell, using $'…' if s has characters that are not printable.
func quote(s string) string {
	if strings.IndexFunc(s, func(c rune) bool { return !unicode.IsPrint(c) }) < 0 {
		return "'" + strings.ReplaceAll(s, "'", `'\''`) + "'"
	}
	return "$'" + strings.ReplaceAll(strings.Trim(strconv.QuoteToASCII(s), `"`), "'", `\'`) + "'"
}

// withoutRedirects returns a copy of t whose client returns redirects instead of following them.
func (t Target) withoutRedirects() Target {
	client := *t.Client
	client.CheckRedirect = func(*http.Request, []*http.Request) error {
		return http.ErrUseLastResponse
	}
	t.Client = &client
	return t
}
