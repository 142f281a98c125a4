// A request that somebody tries.

import {$, ask, el, go, hash, query, say, writes} from "./dom.js";
import {loadKinds} from "./kinds.js";
import {showAnswered} from "./request.js";
import {View} from "./yaml.js";

const form = $("#attempt").elements;
const kept = ["method", "path", "as", "groups", "body"];

const configMaps = "/api/v1/namespaces/default/configmaps";

// The examples, in the order of a first walk through the API.
const examples = [
	["list the namespaces", "GET", "/api/v1/namespaces"],
	["list pods, three at a time", "GET", "/api/v1/pods?limit=3"],
	["read as somebody who may not", "GET", "/api/v1/namespaces/default/secrets", "", "jane"],
	["what a group has", "GET", "/apis/apps/v1"],
	["a path that nobody serves", "GET", "/apis/nobody.example.com/v1/things"],
	["create a ConfigMap", "POST", configMaps,
		"apiVersion: v1\nkind: ConfigMap\nmetadata:\n  name: tried\ndata:\n  color: green\n"],
	["create it, but store nothing", "POST", configMaps + "?dryRun=All",
		"apiVersion: v1\nkind: ConfigMap\nmetadata:\n  name: untried\n"],
	["apply it (server-side)", "PATCH", configMaps + "/tried",
		"apiVersion: v1\nkind: ConfigMap\ndata:\n  size: large\n"],
	["change it with a merge patch", "PATCH", configMaps + "/tried", "data:\n  color: blue\n"],
	["change it with a JSON patch", "PATCH", configMaps + "/tried",
		"- op: add\n  path: /data/shape\n  value: round\n"],
	["ask whether jane may", "POST", "/apis/authorization.k8s.io/v1/subjectaccessreviews",
		"apiVersion: authorization.k8s.io/v1\nkind: SubjectAccessReview\nspec:\n  user: jane\n" +
		"  resourceAttributes:\n    verb: list\n    resource: pods\n"],
	["delete it", "DELETE", configMaps + "/tried"],
].filter(([, method]) => writes || method === "GET");

function fillExample(e) {
	const [, method, path, body = "", as = ""] = examples[e.target.value] ?? [];
	if (!method) return;
	for (const [name, value] of Object.entries({method, path, body, as, groups: ""})) {
		form[name].value = value;
	}
	complete();
}

let kinds = null;

// complete offers paths for what is typed: the collections of all kinds, in the namespace that the
// path has already.
function complete() {
	const [, namespace = "default"] = form.path.value.match(/\/namespaces\/([^/]+)\/./) ?? [];
	$("#paths").replaceChildren(...(kinds ?? []).map(k => el("option", {value:
		(k.group ? `/apis/${k.group}` : "/api") + `/${k.version}/` +
		(k.namespaced ? `namespaces/${namespace}/` : "") + k.resource}, k.kind)));
}

export async function enterTry() {
	const q = query();
	for (const name of kept) {
		if (q.has(name) && document.activeElement !== form[name]) form[name].value = q.get(name);
	}
	try {
		kinds = await loadKinds();
	} catch {
		return; // the answer to a request says what is wrong
	}
	complete();
}

async function send(event) {
	event.preventDefault();
	const values = Object.fromEntries(kept.map(name => [name, form[name].value]));
	go(hash("try", values), true); // without an entry in the browser's history for each attempt
	say("#try-failed", "");
	$("#answer").replaceChildren(el("p", {class: "empty"}, "sending…"));
	try {
		const a = await ask("/try", {method: values.method, path: values.path.trim(),
			body: values.body, as: values.as.trim(),
			groups: values.groups.split(",").map(g => g.trim()).filter(Boolean)});
		const view = new View("Body of the answer");
		view.show(a.body ?? "");
		$("#answer").replaceChildren(el("h3", {}, "The answer"), ...showAnswered(a), view.element);
	} catch (sentence) {
		$("#answer").replaceChildren();
		say("#try-failed", String(sentence));
	}
}

form.example.append(...examples.map(([text], i) => el("option", {value: i}, text)));
form.example.addEventListener("change", fillExample);
form.path.addEventListener("change", complete);
$("#attempt").addEventListener("submit", send);
