// What is said about a box of the chain.

import {$, changed, el, hash} from "./dom.js";
import {explain} from "./explained.js";

const kinds = (group, ...resources) => resources.map(resource =>
	[resource, hash("objects", {group, version: "v1", resource})]);

// The kinds by which a filter decides.
const decides = {
	"authentication": kinds("", "serviceaccounts"),
	"flow control": kinds("flowcontrol.apiserver.k8s.io", "flowschemas",
		"prioritylevelconfigurations"),
	"authorization": kinds("rbac.authorization.k8s.io", "clusterroles", "clusterrolebindings",
		"roles", "rolebindings"),
};

const servers = ["aggregator", "core", "extensions"];

// showBox shows what a box is, or nothing.
export function showBox(name) {
	$("#box").hidden = !name;
	$("#requests-title").textContent = !name || name === "clients" ? "Latest requests"
		: name === "not found" ? "Latest requests that got 404 here"
			: servers.includes(name) ? `Latest requests that ended at ${name}`
				: `Latest requests that passed ${name}`;
	if (!name) return;
	$("#box-title").textContent = name === "not found" ? "404" : name;
	$("#box-close").href = changed({at: ""});
	const links = (decides[name] ?? []).flatMap(([text, href], i) =>
		[i ? ", " : "It decides by ", el("a", {href}, text)]);
	$("#box-about").replaceChildren(...explain(name), links.length ? el("p", {}, ...links) : "");
}
