// The inventory: what hangs on the chain.

import {$, ask, el, objectHash} from "./dom.js";
import {count, signed, soft, tallies} from "./format.js";
import {fill} from "./table.js";

const roles = {
	aggregator: "passes requests to extension API servers, and serves APIServices itself",
	core: "serves the built-in kinds",
	extensions: "serves CustomResourceDefinitions and custom resources",
};

export async function enterInventory() {
	const said = $("#inventory-state");
	said.textContent = "loading…";
	try {
		showInventory(await ask("/inventory"));
		const counts = await ask("/counts");
		fill($("#counts"), ["Kind", "Group?", "Objects", "State"],
			counts.sort((a, b) => b.count - a.count).map(c => [el("a", {href: objectHash(c)}, c.kind),
				soft(c.group), c.count, c.states ? tallies(c.states) : ""]), "no objects");
		said.textContent = "as of " + new Date().toLocaleTimeString();
	} catch (sentence) {
		said.textContent = sentence;
	}
}

function showInventory(i) {
	$("#problems").replaceChildren(...(i.problems ?? []).map(p => el("p", {class: "problem"}, p)));
	const broken = new Set((i.apiServices ?? []).filter(c => !c.good).map(c => c.object));
	const name = v => v.includes("/") ? v.split("/").reverse().join(".") : v + ".";
	$("#versions").replaceChildren(...Object.keys(roles).map(link =>
		el("div", {class: "card"}, el("h4", {}, link), el("p", {class: "empty"}, roles[link]),
			el("ul", {tabindex: 0, role: "list", "aria-label": `Group versions that the ${link} serves`},
				...(i.versions ?? []).filter(v => v.link === link).map(v => el("li", {},
					signed(broken.has(name(v.version)) ? "failing" : "ready", soft(v.version)),
					el("span", {class: "quiet"}, v.by ? soft("→ " + v.by) : count(v.kinds, "kind"))))))));
	fill($("#loops"), ["Loop", "State"],
		(i.loops ?? []).sort((a, b) => b.value - a.value).map(l => [soft(l.name), l.value
		? signed("ready", "runs") : signed("done", "waits for its first object")]),
	"no control loops are reported");
	fill($("#watches"), ["Resource", "Watches"], (i.watches ?? []).map(w =>
		[soft(w.name), w.value]), "no watches");
	fill($("#nodes"), ["Node", "State", "Capacity?"], (i.nodes ?? []).map(n => [
		el("a", {href: objectHash({group: "", version: "v1", resource: "nodes"}, "", n.name)},
			soft(n.name + (n.simulated ? " (simulated)" : ""))),
		signed(n.health, n.state), n.capacity]), "no nodes");
	const conditions = list => (list ?? []).sort((a, b) => a.good - b.good).map(c => [soft(c.object),
		signed(c.good ? "ready" : "failing", `${c.type} ${c.status}`.trim()),
		c.reason + (c.message ? `: ${c.message}` : "")]);
	fill($("#crds"), ["Definition", "Condition", "Reason?"], conditions(i.definitions),
		"no definitions");
	fill($("#apiservices"), ["APIService", "Condition", "Reason?"], conditions(i.apiServices),
		"no APIServices");
}

$("#refresh").addEventListener("click", enterInventory);
