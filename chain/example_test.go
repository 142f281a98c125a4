package chain_test

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"log"
	"net/http"

	"k8s.io/client-go/rest"

	"github.com/kinproc/kinproc/chain/trace"
	"github.com/kinproc/kinproc/server"
)

// Example prints which server of the chain answers each URL.
func Example() {
	ctx := context.Background()
	s, err := server.New(server.Options{})
	if err != nil {
		log.Fatal(err)
	}
	if err := s.Start(ctx); err != nil {
		log.Fatal(err)
	}
	defer s.Stop(ctx)
	client, err := rest.HTTPClientFor(s.RESTConfig())
	if err != nil {
		log.Fatal(err)
	}
	for _, path := range []string{
		"/apis/apiregistration.k8s.io/v1/apiservices",
		"/api/v1/namespaces/default",
		"/apis/apps/v1/deployments",
		"/apis/apiextensions.k8s.io/v1/customresourcedefinitions",
		"/apis/stable.example.com/v1/crontabs",
	} {
		steps, err := traceOf(ctx, client, s.URL()+path)
		if err != nil {
			log.Fatal(err)
		}
		for _, step := range steps {
			if step.Decision == "served" || step.Decision == "404" {
				fmt.Println(path, "→", step.At)
			}
		}
	}
	// Output:
	// /apis/apiregistration.k8s.io/v1/apiservices → aggregator
	// /api/v1/namespaces/default → core
	// /apis/apps/v1/deployments → core
	// /apis/apiextensions.k8s.io/v1/customresourcedefinitions → extensions
	// /apis/stable.example.com/v1/crontabs → not found
}

// traceOf asks for the trace of a request, which comes in the trailer of the response.
func traceOf(ctx context.Context, client *http.Client, url string) ([]trace.Step, error) {
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return nil, err
	}
	request.Header.Set(trace.Header, "1")
	response, err := client.Do(request)
	if err != nil {
		return nil, err
	}
	defer response.Body.Close()
	if _, err := io.Copy(io.Discard, response.Body); err != nil {
		return nil, err
	}
	var steps []trace.Step
	return steps, json.Unmarshal([]byte(response.Trailer.Get(trace.Header)), &steps)
}
