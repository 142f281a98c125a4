// Package extension is for extension API servers: servers of API groups of their own, to which a
// control plane's aggregator sends requests. The kinds are declared with package
// [github.com/kinproc/kinproc/chain/kind].
//
//	s, err := extension.New(extension.Options{
//		Groups:     []kind.Group{chat()},
//		RESTConfig: config,
//		Storage:    extension.Files("rooms"),
//	})
//	if err != nil {
//		return err
//	}
//	go func() { registered <- extension.Register(ctx, config, s.Registration()) }()
//	return s.Run(ctx)
//
// # Users
//
// The control plane authenticates and authorizes. Requests through the aggregator have the user in
// headers, which the server trusts if the client certificate is the aggregator's. Clients that
// connect directly have a client certificate of the control plane or a token, which the control
// plane reviews. The control plane is then asked what the user may do.
//
// The user of Options.RESTConfig needs the cluster role system:auth-delegator and, in the namespace
// kube-system, the role extension-apiserver-authentication-reader. With Options.ClusterAdmission it
// also needs to get, list and watch namespaces, and to list and watch the kinds of
// admissionregistration.k8s.io.
//
// # OpenAPI
//
// The server describes its kinds in OpenAPI v2 and v3, on which kubectl explain and server-side
// apply depend. Definitions are made from the Go types and their JSON tags. A field is required
// unless it is a pointer or its tag says omitempty or omitzero. Descriptions come from a method
// SwaggerDoc() map[string]string, whose keys are the JSON names of the fields and "" for the type.
// A list with the tags patchStrategy:"merge" and patchMergeKey:"name" is merged by that key.
// Options.OpenAPI takes what openapi-gen generates from comments and markers instead.
//
// # Certificates
//
// The server has an authority of its own, which is in its [Registration] and valid for ten years,
// and a serving certificate for 90 days, which it renews while it runs.
package extension
