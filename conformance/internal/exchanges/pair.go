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

// Pair is two servers that are asked the same. What the second one answers is what is wanted of the first one.
//
// A pair remembers all that its servers have answered: requests may refer to it, and it shows which writes changed nothing.
type Pair struct {
	sides [2]replay
}

// NewPair makes a pair.
func NewPair(first, second Target) *Pair {
	p := &Pair{}
	for i, target := range []Target{first, second} {
		p.sides[i] = replay{target: target.withoutRedirects(), names: normaliser{revisions: map[string]string{}}}
	}
	return p
}

// Answers are those of the two servers, normalised; nil where there is none because the connection broke.
type Answers struct {
	First, Second *Response
	// What says in words where they differ, one place each.
	What []string
	// Broken is why there is no answer.
	Broken error
	// Curl is the request to the first server as a command line, without a token and with the beginning of a long body.
	Curl string
}

// Ask sends a request to both servers at once. The error is that of the context.
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
			responses[i].Body = p.sides[i].names.value(structured(responses[i].Headers.ContentType, bodies[i]))
		}
	}
	answers := Answers{First: responses[0], Second: responses[1], Broken: errors.Join(failures[:]...), Curl: sent.curl()}
	switch {
	case answers.First == nil && answers.Second == nil:
	case answers.First == nil || answers.Second == nil:
		answers.What = []string{"answer: " + answers.Broken.Error()}
	default:
		answers.What = compare(answers.Second, answers.First)
	}
	return answers, nil
}

// structured is a body in YAML as it would be in JSON.
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

// curl is a command line; $SERVER stands for the server.
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
		line = append(line, "--data-binary", quote(r.body[:most]), fmt.Sprintf("# and %d bytes more", len(r.body)-most))
	case r.body != "":
		line = append(line, "--data-binary", quote(r.body))
	}
	return strings.Join(line, " ")
}

// quote quotes for a shell, in its way for bytes that would not show.
func quote(s string) string {
	if strings.IndexFunc(s, func(c rune) bool { return !unicode.IsPrint(c) }) < 0 {
		return "'" + strings.ReplaceAll(s, "'", `'\''`) + "'"
	}
	return "$'" + strings.ReplaceAll(strings.Trim(strconv.QuoteToASCII(s), `"`), "'", `\'`) + "'"
}

// withoutRedirects is a target whose client returns redirects instead of following them.
func (t Target) withoutRedirects() Target {
	client := *t.Client
	client.CheckRedirect = func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }
	t.Client = &client
	return t
}
