package conformance_test

import (
	"encoding/json"
	"strings"
)

// The values that odd requests are made of. None of them is the name of a system object.

func oddStrings() []string {
	return []string{
		"", " ", "a", "A", "-", ".", "..", "/", "%", "%2F", "a/b", "a b", "a.b", "a_b", "a:b", "*",
		"null", "true", "0", "-1", "1e3", "\n", "\t", "\x00",
		"\u00e9", "\u65e5\u672c", "\U0001f600", "\u202e", "\ufeff", "e\u0301", "a\u0000b", "'", `"`, "\\",
		"<a>&", "{}", "[]", "${x}", "$(X)", "a=b", "a,b", "!a",
		strings.Repeat("a", 63), strings.Repeat("a", 64), strings.Repeat("a", 253),
		strings.Repeat("a", 254), strings.Repeat("a.", 126) + "a", strings.Repeat("\u00e9", 200),
		"kubernetes.io/a", "k8s.io/", "/a", "a/", "example.com/" + strings.Repeat("a", 64), "1",
		"100m", "1Ki", "1.5", "-5", "1e100", "12345678901234567890", "0x10", "1h", "10s", "5%", "100%",
		"101%", "2020-01-01T00:00:00Z", "2020-01-01T00:00:00.123456Z", "2020-13-01T00:00:00Z", "1.2.3.4",
		"::1", "1.2.3.4/33", "256.1.1.1", "01.2.3.4", "fe80::1%eth0", "http://a", "https://a b",
		"11111111-2222-3333-4444-555555555555", "v1", "v2", "apps/v1", "Pod", "pod", "Always",
		"TCP", "tcp",
	}
}

func oddNumbers() []json.Number {
	return []json.Number{
		"0", "-0", "1", "-1", "2", "0.5", "1.0", "1e2", "1E400", "-2147483649", "2147483647",
		"2147483648", "9223372036854775807", "9223372036854775808", "18446744073709551616", "65535",
		"65536", "1000000", "0.1234567890123456789",
	}
}

// oddSegments returns escaped path segments.
func oddSegments() []string {
	return []string{
		"", "a", "A", ".", "%2E", "..", "%2e%2e", "%20", "%2F", "%25", "%00", "%0a", "%C3%A9", "%ff",
		"a%2Fb", "a%3Ab", "a;b", "a:b", "a,b", "a=b", "*", "~", "-", "_", "a..b", "-a", "a-", "status",
		"scale", "watch", "namespaces", strings.Repeat("a", 63), strings.Repeat("a", 64),
		strings.Repeat("a", 254), "%E6%97%A5", "%F0%9F%98%80", "v1", "v2", "v1beta1", "v1alpha1",
		"__internal", "pods", "Pods", "pod", "events", "foo",
	}
}

// subresources returns the subresources whose responses do not depend on a node.
func subresources() []string {
	return []string{
		"status", "scale", "binding", "eviction", "finalize", "token", "ephemeralcontainers", "resize",
		"approval", "foo", "status/status", "Status",
	}
}

// oddQueries returns escaped query parameters. Watches end after one second.
func oddQueries() []string {
	return []string{
		"labelSelector=a", "labelSelector=a%3Db", "labelSelector=%21a", "labelSelector=a+in+%28b%2Cc%29",
		"labelSelector=a+notin+%28b%29", "labelSelector=%3D",
		"labelSelector=a+in+%28%29", "labelSelector=a%3D%3D%3D", "labelSelector=,", "labelSelector=a%3E1",
		"labelSelector=a%3Ex", "labelSelector=%C3%A9%3D1", "labelSelector=",
		"labelSelector=a%3D" + strings.Repeat("a", 64), "labelSelector=" + strings.Repeat("a", 64),
		"labelSelector=a&labelSelector=b",
		"fieldSelector=metadata.name%3Dx", "fieldSelector=metadata.name%21%3Dx",
		"fieldSelector=metadata.namespace%3Dx", "fieldSelector=spec.foo%3D1",
		"fieldSelector=metadata.labels%3D1", "fieldSelector=x", "fieldSelector=%3D", "fieldSelector=,",
		"fieldSelector=metadata.name%3D", "fieldSelector=metadata.name",
		"fieldSelector=metadata.name%3Da%2Cmetadata.name%3Db", "fieldSelector=status.phase%3DRunning",
		"fieldSelector=spec.nodeName%3D", "fieldSelector=metadata.name+in+%28a%29",
		"fieldSelector=metadata.name%3Da%5C%2Cb", "fieldSelector=metadata.name%3D%5C",
		"limit=0", "limit=1", "limit=-1", "limit=x", "limit=1.5", "limit=9223372036854775808", "limit=",
		"limit=1&limit=2", "limit=500",
		"continue=x", "continue=", "continue=e30",
		"continue=eyJ2IjoibWV0YS5rOHMuaW8vdjEiLCJydiI6LTEsInN0YXJ0IjoiYVx1MDAwMCJ9",
		"continue=eyJ2IjoibWV0YS5rOHMuaW8vdjEiLCJydiI6MCwic3RhcnQiOiIifQ",
		"continue=eyJ2IjoidjIiLCJydiI6MSwic3RhcnQiOiJhIn0", "limit=1&continue=x",
		"continue=eyJ2IjoibWV0YS5rOHMuaW8vdjEiLCJydiI6LTEsInN0YXJ0IjoiLi4vYSJ9",
		"resourceVersion=0", "resourceVersion=", "resourceVersion=x", "resourceVersion=-1",
		"resourceVersion=1.5", "resourceVersion=18446744073709551616",
		"resourceVersion=0&resourceVersionMatch=NotOlderThan",
		"resourceVersion=0&resourceVersionMatch=Exact", "resourceVersionMatch=Exact",
		"resourceVersionMatch=x",
		"resourceVersion=0&resourceVersionMatch=", "resourceVersion=x&resourceVersionMatch=Exact",
		"resourceVersion=0&continue=x", "resourceVersionMatch=NotOlderThan&limit=1",
		"sendInitialEvents=true", "sendInitialEvents=x", "sendInitialEvents=false",
		"allowWatchBookmarks=true", "allowWatchBookmarks=x",
		"watch=true", "watch=1", "watch=x", "watch=", "watch=false",
		"watch=true&sendInitialEvents=true&resourceVersionMatch=NotOlderThan&allowWatchBookmarks=true",
		"watch=true&sendInitialEvents=true", "watch=true&resourceVersion=x",
		"watch=true&resourceVersion=0", "watch=true&fieldSelector=metadata.name%3Dx",
		"watch=true&limit=1",
		"watch=true&resourceVersionMatch=Exact", "watch=true&labelSelector=%3D", "watch=true&continue=x",
		"timeoutSeconds=x", "timeoutSeconds=-1", "timeoutSeconds=1", "timeoutSeconds=1.5", "timeout=1s",
		"timeout=x", "timeout=-1s", "timeout=60s", "timeout=",
		"dryRun=All", "dryRun=x", "dryRun=", "dryRun=All&dryRun=All", "dryRun=All&dryRun=x", "dryRun=all",
		"dryRun=All,All",
		"fieldManager=m", "fieldManager=", "fieldManager=" + strings.Repeat("a", 128),
		"fieldManager=" + strings.Repeat("a", 129), "fieldManager=%00", "fieldManager=%C3%A9",
		"fieldManager=a%0Ab", "fieldManager=a&fieldManager=b", "force=true", "force=x", "force=",
		"force=false",
		"fieldValidation=Strict", "fieldValidation=Warn", "fieldValidation=Ignore", "fieldValidation=x",
		"fieldValidation=", "fieldValidation=strict",
		"gracePeriodSeconds=0", "gracePeriodSeconds=-1", "gracePeriodSeconds=x", "gracePeriodSeconds=30",
		"gracePeriodSeconds=9223372036854775808",
		"propagationPolicy=Foreground", "propagationPolicy=Background", "propagationPolicy=Orphan",
		"propagationPolicy=x", "propagationPolicy=", "orphanDependents=true", "orphanDependents=x",
		"orphanDependents=true&propagationPolicy=Background",
		"ignoreStoreReadErrorWithClusterBreakingPotential=true",
		"ignoreStoreReadErrorWithClusterBreakingPotential=x", "preconditions.uid=x", "shardSelector=x",
		"pretty=true", "pretty=x", "pretty=", "includeObject=None", "includeObject=Metadata",
		"includeObject=Object", "includeObject=x", "exact=true", "export=true", "a=b", "=", "&&",
		"a", "%00=1", "%C3%A9=1", "a%3Db", "kind=Pod", "apiVersion=v1", "name=x", "namespace=x",
		strings.Repeat("a=b&", 200),
	}
}

// oddHeaders returns pairs of header names and values.
func oddHeaders() [][2]string {
	return [][2]string{
		{"Accept", "*/*"}, {"Accept", ""}, {"Accept", "application/yaml"},
		{"Accept", "application/vnd.kubernetes.protobuf"}, {"Accept", "text/html"},
		{"Accept", "text/plain"},
		{"Accept", "application/*"}, {"Accept", "image/png"}, {"Accept", "x"}, {"Accept", ","},
		{"Accept", "application/json;q=0"}, {"Accept", "application/xml, application/json;q=0.1"},
		{"Accept", "application/json;as=Table;g=meta.k8s.io;v=v1"},
		{"Accept", "application/json;as=Table;g=meta.k8s.io;v=v1beta1"},
		{"Accept", "application/json;as=Table;g=meta.k8s.io;v=v2"},
		{"Accept", "application/json;as=PartialObjectMetadata;g=meta.k8s.io;v=v1"},
		{"Accept", "application/json;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1"},
		{"Accept", "application/json;as=Table;g=meta.k8s.io;v=v1,application/json"},
		{"Accept", "application/json;as=Pod;g=;v=v1"}, {"Accept", "application/json;as=X;g=y;v=z"},
		{"Accept", "application/yaml;as=PartialObjectMetadata;g=meta.k8s.io;v=v1"},
		{"Accept", "application/vnd.kubernetes.protobuf;as=Table;g=meta.k8s.io;v=v1"},
		{"Accept", "application/json;stream=watch"},
		{"Accept", "application/vnd.kubernetes.protobuf;stream=watch"},
		{"Accept", "application/json;profile=nosuch"},
		{"Accept", "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList"},
		{"Accept", "application/json; charset=utf-8"}, {"Accept", "APPLICATION/JSON"},
		{"Accept", "application/json;pretty=1"}, {"Accept", "application/json;as=Table"},
		{"Content-Type", ""}, {"Content-Type", "application/json"}, {"Content-Type", "application/yaml"},
		{"Content-Type", "application/vnd.kubernetes.protobuf"}, {"Content-Type", "text/plain"},
		{"Content-Type", "x"}, {"Content-Type", "application/json; charset=utf-16"},
		{"Content-Type", "application/json;"}, {"Content-Type", "application/x-www-form-urlencoded"},
		{"Content-Type", "multipart/form-data"}, {"Content-Type", "application/json, application/yaml"},
		{"Content-Type", "*/*"}, {"Content-Type", "Application/JSON"},
		{"Content-Type", "application/json-patch+json"}, {"Content-Type", "application/merge-patch+json"},
		{"Content-Type", "application/strategic-merge-patch+json"},
		{"Content-Type", "application/apply-patch+yaml"},
		{"Content-Type", "application/apply-patch+cbor"},
		{"Content-Type", "application/apply-patch+json"},
		{"Content-Encoding", "gzip"}, {"Content-Encoding", "x"},
		{"Impersonate-User", "alice"}, {"Impersonate-User", ""}, {"Impersonate-User", "system:anonymous"},
		{"Impersonate-User", "system:serviceaccount:a:b"},
		{"Impersonate-User", "system:serviceaccount:A:b"}, {"Impersonate-User", "system:node:a"},
		{"Impersonate-Group", "g"}, {"Impersonate-Group", ""}, {"Impersonate-Uid", "1"},
		{"Impersonate-Extra-a", "b"}, {"Impersonate-Extra-A%2fb", "c"}, {"Impersonate-X", "y"},
		{"User-Agent", ""}, {"User-Agent", "a/b c/d"}, {"User-Agent", strings.Repeat("a", 200)},
		{"User-Agent", "\u00e9/1"}, {"User-Agent", "/"}, {"User-Agent", " "},
		{"If-None-Match", "*"}, {"If-Match", "x"}, {"If-Modified-Since", "x"}, {"Range", "bytes=0-1"},
		{"X-HTTP-Method-Override", "DELETE"}, {"Origin", "http://a"}, {"X-Remote-User", "alice"},
		{"X-Forwarded-For", "1.2.3.4"}, {"Audit-ID", "x"}, {"Audit-ID", strings.Repeat("a", 300)},
		{"Warning", "299 - x"}, {"Accept-Language", "de"}, {"Traceparent", "x"}, {"Cookie", "a=b"},
	}
}

func oddMethods() []string {
	return []string{
		"GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS", "TRACE", "FOO", "get", "LIST",
		"WATCH", "PROPFIND",
	}
}

// oddPaths returns paths that do not lead to an object.
func oddPaths() []string {
	return []string{
		"/", "//", "/.", "/..", "/api", "/api/", "/api//v1", "/api/v1/", "/api/v2", "/api/v1beta1/pods",
		"/API/V1", "/apis", "/apis/", "/apis//", "/apis/apps", "/apis/apps/", "/apis/apps/v2",
		"/apis/apps/v1/", "/apis/foo", "/apis/foo/v1", "/apis/foo/v1/bars",
		"/apis/foo/v1/namespaces/a/bars/b/status", "/apis//v1/pods", "/api/v1/foo", "/api/v1/foo/bar",
		"/api/v1/namespaces//pods", "/api/v1/namespaces/a//b", "/api/v1/namespaces/a/pods/",
		"/api/v1/namespaces/a/pods//status", "/api/v1/nodes//", "/api/v1/namespaces/a/nodes",
		"/api/v1/namespaces/a/namespaces/b", "/api/v1/pods/a", "/api/v1/watch", "/api/v1/watch/",
		"/api/v1/watch/foo", "/api/v1/watch/namespaces", "/api/v1/proxy/nodes/a",
		"/api/v1/redirect/nodes/a", "/api/v1/ns/a/pods", "/api/v1/minions", "/api/v1/bindings",
		"/api/v1/namespaces/a/bindings", "/apis/extensions/v1beta1/ingresses",
		"/apis/batch/v1beta1/cronjobs", "/apis/policy/v1beta1/podsecuritypolicies",
		"/apis/autoscaling/v2beta2/horizontalpodautoscalers", "/healthz", "/healthz/", "/healthz/foo",
		"/livez/ping",
		"/livez?exclude=x", "/readyz/ping", "/readyz/foo", "/version/", "/version/foo", "/metrics/foo",
		"/logs", "/logs/", "/debug", "/debug/pprof/foo", "/swagger.json", "/swagger-ui",
		"/swaggerapi", "/openapi", "/openapi/v2/", "/openapi/v4", "/openapi/v3/foo",
		"/openapi/v3/apis/foo/v1", "/ui", "/index.html", "/favicon.ico", "/static", "/.well-known",
		"/.well-known/openid-configuration/", "/openid/v1/jwks/",
		"/apis/apiextensions.k8s.io/v1/customresourcedefinitions/a",
		"/apis/apiregistration.k8s.io/v1/apiservices/a/status", "/apis/apps/v1/deployments/a",
		"/apis/apps/v1/namespaces/a/deployments/b/scale/c",
		"/api/v1/componentstatuses/foo", "/apis/authentication.k8s.io/v1/tokenreviews",
		"/apis/authorization.k8s.io/v1/subjectaccessreviews/a", "/%61pi/v1",
		"/api%2Fv1", "/api/v1%2Fnodes", "/api/v1;a=b/nodes", "/api/v1/nodes;a", "/api/v1/nodes%00",
		"/api/v1/no%64es", "/api/v1/namespaces/%2e%2e/pods", "/api/v1/namespaces/a/../b/pods",
		"/api/v1/namespaces/a/pods/..%2fx", "/api/v1/namespaces/a/pods/%C3%A9",
	}
}

// oddBodies returns bodies that are sent as they are.
func oddBodies() []string {
	return []string{
		"", " ", "null", "true", "0", `""`, "[]", "{}", "[{}]", "{", "}", "{]", `{"a":}`, `{"a":1,}`,
		`{'a':1}`, "\x00", "\xff\xfe", "\ufeff{}", "k8s\x00", "k8s\x00\x0a\x00",
		"k8s\x00\xff\xff\xff\xff",
		"a: b", "a: [b", "- a", "---\n---\n", "a: &a [*a]", "a: &a b\nc: *a", "a: *b", "!!binary x",
		"? a", "kind: Pod\nkind: Pod", "\t", "%YAML 1.2\n---\na: b",
		`{"kind":"Pod"}`, `{"apiVersion":"v1"}`, `{"apiVersion":"v1","kind":"List","items":[]}`,
		`{"apiVersion":"v1","kind":"Status","status":"Failure"}`, `{"apiVersion":"v2","kind":"Foo"}`,
		`{"apiVersion":"a/b/c","kind":"Pod"}`, `{"apiVersion":1,"kind":2}`,
		`{"apiVersion":"v1","kind":"DeleteOptions"}`,
		`{"apiVersion":"v1","kind":"DeleteOptions","propagationPolicy":"x"}`,
		`{"apiVersion":"v1","kind":"DeleteOptions","gracePeriodSeconds":-1}`,
		`{"apiVersion":"v1","kind":"DeleteOptions","orphanDependents":true,"propagationPolicy":"Orphan"}`,
		`{"apiVersion":"v1","kind":"DeleteOptions","preconditions":{"uid":"x"}}`,
		`{"apiVersion":"v1","kind":"DeleteOptions","preconditions":{"resourceVersion":"x"}}`,
		`{"apiVersion":"v1","kind":"DeleteOptions","dryRun":["All"]}`,
		`{"apiVersion":"v1","kind":"DeleteOptions","dryRun":["x"]}`,
		`{"apiVersion":"meta.k8s.io/v1","kind":"DeleteOptions"}`,
		`{"propagationPolicy":"Foreground"}`, `{"kind":"DeleteOptions","apiVersion":"apps/v1"}`,
		`{"kind":"DeleteOptions","apiVersion":"foo/v1"}`, `{"metadata":null}`, `{"metadata":[]}`,
		`{"metadata":{"name":null}}`, `{"metadata":{"labels":[]}}`,
		`{"metadata":{"annotations":{"a":1}}}`, `{"spec":null}`, `{"spec":[]}`, `{"status":{}}`,
		`{"metadata":{"resourceVersion":"0"}}`,
		`{"metadata":{"resourceVersion":"x"}}`, `{"metadata":{"resourceVersion":1}}`,
		`{"$patch":"delete"}`, `{"$patch":"replace"}`, `{"$patch":"x"}`,
		`{"metadata":{"$patch":"replace"}}`,
		`{"metadata":{"$retainKeys":["name"]}}`,
		`{"spec":{"$setElementOrder/containers":[{"name":"a"}]}}`,
		`{"metadata":{"$deleteFromPrimitiveList/finalizers":["a"]}}`,
		`{"spec":{"containers":[{"$patch":"delete","name":"x"}]}}`,
		`{"spec":{"containers":[{"name":null}]}}`, `{"spec":{"containers":[1]}}`,
		`{"spec":{"containers":[{"image":"a"}]}}`,
		`{"spec":{"template":{"spec":{"containers":[{"name":{},"image":"x"}]}}}}`,
		`{"status":{"addresses":[{"type":{},"address":"x"}]}}`, `{"status":{"conditions":[{"type":[]}]}}`,
		`{"spec":{"ports":[{"port":"x"}]}}`, `{"spec":{"ports":[{"port":{}}]}}`,
		`{"spec":{"taints":[{"key":{}}]}}`, `{"metadata":{"finalizers":{"a":1}}}`,
		`{"metadata":{"ownerReferences":[{"uid":{}}]}}`,
		`[{"op":"test","path":"/metadata/name","value":"x"}]`, `[{"op":"remove","path":"/metadata/foo"}]`,
		`[{"op":"add","path":"/metadata/labels/a~1b","value":"c"}]`,
		`[{"op":"add","path":"","value":{}}]`,
		`[{"op":"replace","path":"/metadata","value":null}]`,
		`[{"op":"copy","from":"/metadata","path":"/spec"}]`,
		`[{"op":"move","from":"/metadata","path":"/metadata/a"}]`, `[{"op":"x","path":"/a"}]`,
		`[{"op":"add","path":"a","value":1}]`, `[{"op":"add"}]`, `[{"path":"/a"}]`,
		`[{"op":"add","path":"/metadata/finalizers/-","value":"a"}]`,
		`[{"op":"add","path":"/metadata/finalizers/-1","value":"a"}]`,
		`[{"op":"add","path":"/metadata/finalizers/99999999999999999999","value":"a"}]`,
		`[{"op":"test","path":"","value":null}]`, `[{"op":"remove","path":""}]`,
		`[{"op":"add","path":"/spec/~2","value":1}]`, `[{"op":"copy","from":"/x","path":"/y"}]`,
		`[{"op":"replace","path":"/metadata/name","value":"y"}]`,
		`[{"op":"replace","path":"/apiVersion","value":"v9"}]`,
		`[{"op":"replace","path":"/kind","value":1}]`, `[null]`, `[1]`, `[[]]`, strings.Repeat("[", 100),
		strings.Repeat("[", 20000), strings.Repeat(`{"a":`, 12000) + "1" + strings.Repeat("}", 12000),
		`{"a":"` + strings.Repeat("b", 70000) + `"}`,
		"[" +
			strings.TrimSuffix(strings.Repeat(`{"op":"test","path":"/kind","value":"x"},`, 10001), ",") +
			"]",
	}
}

// oddFields returns pointers to fields that are set in objects.
func oddFields() []string {
	return []string{
		"/metadata/name", "/metadata/generateName", "/metadata/namespace", "/metadata/uid",
		"/metadata/resourceVersion", "/metadata/generation", "/metadata/creationTimestamp",
		"/metadata/deletionTimestamp", "/metadata/deletionGracePeriodSeconds", "/metadata/labels",
		"/metadata/labels/a", "/metadata/annotations", "/metadata/annotations/a", "/metadata/finalizers",
		"/metadata/finalizers/0", "/metadata/ownerReferences", "/metadata/ownerReferences/0",
		"/metadata/managedFields", "/metadata/managedFields/0", "/metadata/selfLink", "/metadata",
		"/metadata/foo", "/apiVersion", "/kind", "/spec", "/spec/foo", "/status", "/status/foo",
		"/status/conditions", "/status/conditions/0", "/data", "/foo", "/spec/selector", "/spec/replicas",
		"/spec/template", "/spec/template/metadata", "/spec/template/spec",
	}
}
