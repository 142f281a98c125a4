// What happens at each box and step of the chain, the file of the code, and the walk of the tour
// that shows it. A test looks whether the files exist.

import {el} from "./dom.js";

const source = "https://github.com/kinproc/kinproc/blob/main/";

const request = "docs/tour/1-request.md", write = "docs/tour/5-write.md";

const explained = {
	"clients": ["People with kubectl, controllers, control loops and kubelets: all of them send " +
		"requests to the chain. A watch is one request that stays open.", "server/clients.go", request],
	"authentication": ["A client certificate, a token or the headers of a proxy say who asks. " +
		"Without any of them, the user is anonymous.", "server/internal/auth/authentication.go", request],
	"flow control": ["Priority and fairness finds the flow schema of the request. Its priority " +
		"level says how many requests run at once, and the others wait in queues.",
	"server/internal/apis/apis.go", request],
	"authorization": ["RBAC looks for a role that allows the verb on the resource. Members of " +
		"system:masters may do everything.", "server/internal/auth/authorization.go", request],
	"aggregator": ["The first server looks for the APIService of the group version. If that names " +
		"a service, the request goes to an extension API server; otherwise to the next server.",
	"chain/aggregator/aggregator.go", request],
	"extension servers": ["Programs that serve group versions of their own. An APIService names the " +
		"service to which the aggregator proxies their requests.", "chain/aggregator/link.go",
	"docs/tour/3-aggregated.md"],
	"core": ["The second server has the built-in kinds, such as Pod. Other requests go to the next " +
		"server.", "chain/core/groups.go", request],
	"extensions": ["The third server has the kinds that CustomResourceDefinitions define.",
		"chain/extensions/extensions.go", request],
	"webhooks": ["Programs that a server asks before it stores an object: they may change the object, " +
		"or refuse the request.", "chain/admission.go", write],
	"not found": ["No server serves the path.", "chain/chain.go", request],
	"body": ["The body of the request is read, up to a limit.", "chain/bodies.go", write],
	"decoding": ["The body becomes an object of the version that the server works with, and gets " +
		"the defaults of its fields.", "chain/core/internal/legacy/pods.go", write],
	"patching": ["The patch is applied to the object that etcd has.", "chain/kind/storage.go", write],
	"strategy": ["The strategy of the kind prepares the object: it resets what clients may not " +
		"set, such as the status.", "chain/kind/strategy.go", write],
	"mutating admission": ["Plugins and webhooks may change the object. Each patch is what one of " +
		"them changed.", "chain/admission.go", write],
	"webhook": ["A webhook outside of the server was asked.", "chain/admission.go", write],
	"validation": ["The strategy of the kind checks the fields of the object. It lists everything " +
		"that is wrong.", "chain/core/internal/legacy/pods.go", write],
	"validating admission": ["Plugins, policies and webhooks may refuse the object now, but not " +
		"change it.", "chain/admission.go", write],
	"storage encoding": ["The object is converted to its storage version and encoded, in protobuf " +
		"for built-in kinds.", "chain/storage.go", write],
	"etcd": ["etcd reads or writes a key. A write is acknowledged when it is on the disk.",
		"embed/embed.go", write],
	"storage decoding": ["What etcd has stored becomes an object again.", "chain/storage.go", write],
	"encoding": ["The object is converted to the version that the client asked for, and encoded " +
		"for the response.", "chain/bodies.go", write],
};

const outer = file => el("a", {href: source + file, target: "_blank", rel: "noopener noreferrer"},
	file);

// explain returns what happens at a box or a step, with links to the code and the tour.
export function explain(at) {
	const [text, file, tour] = explained[at] ?? ["", "chain/chain.go", "docs/tour/README.md"];
	return [el("p", {}, text),
		el("p", {class: "where"}, "The code: ", outer(file), " · The tour: ", outer(tour))];
}
