// The inventory: what hangs on the chain, or on one of its boxes.

import {$, $$, ask, el, objectHash} from "./dom.js";
import {count, signed, soft, tallies} from "./format.js";
import {fill} from "./table.js";

const roles = {
	aggregator: "serves APIServices itself",
	"extension servers": "get the requests for these from the aggregator",
	core: "serves the built-in kinds",
	extensions: "serves CustomResourceDefinitions and custom resources",
};

let shown = "", asked = 0;

// showInventory shows what hangs on a box, or on all of them, or nothing.
export async function showInventory(box) {
	let parts = 0;
	for (const part of $$("#hangs [data-boxes]")) {
		part.hidden = box !== "all" && !part.dataset.boxes.split(",").includes(box);
		parts += !part.hidden;
	}
	$("#hangs").hidden = parts === 0;
	shown = box;
	const mine = ++asked;
	if (parts === 0) return;
	const said = $("#inventory-state");
	said.textContent = "loading…";
	try {
		const i = await ask("/inventory");
		if (mine !== asked) return;
		fillIn(i);
		if (!$("#counts").closest("[hidden]")) {
			const all = await ask("/counts");
			if (mine !== asked) return;
			const on = linksOf(i), links = ["core", "extensions", "extension servers"];
			const counts = links.includes(box) ? all.filter(c =>
				on.get(c.group ? `${c.group}/${c.version}` : c.version) === box) : all;
			fill($("#counts"), ["Kind", "Group?", "Objects", "State"],
				counts.sort((a, b) => b.count - a.count).map(c => [el("a", {href: objectHash(c)}, c.kind),
					soft(c.group), c.count, c.states ? tallies(c.states) : ""]), "no objects");
		}
		said.textContent = "as of " + new Date().toLocaleTimeString();
	} catch (sentence) {
		if (mine === asked) said.textContent = String(sentence);
	}
}

const linkOf = v => v.by ? "extension servers" : v.link;

const linksOf = i => new Map((i.versions ?? []).map(v => [v.version, linkOf(v)]));

function fillIn(i) {
	$("#problems").replaceChildren(...(i.problems ?? []).map(p => el("p", {class: "problem"}, p)));
	const broken = new Set((i.apiServices ?? []).filter(c => !c.good).map(c => c.object));
	const name = v => v.includes("/") ? v.split("/").reverse().join(".") : v + ".";
	const links = Object.keys(roles).filter(l => shown === "all" || l === shown);
	$("#versions").replaceChildren(...links.map(link =>
		el("div", {class: "card"}, el("h4", {}, link), el("p", {class: "empty"}, roles[link]),
			el("ul", {tabindex: 0, role: "list", "aria-label": `Group versions that the ${link} serves`},
				...(i.versions ?? []).filter(v => linkOf(v) === link).map(v => el("li", {},
					signed(broken.has(name(v.version)) ? "failing" : "ready", soft(v.version)),
					el("span", {class: "quiet"}, v.by ? soft("→ " + v.by) : count(v.kinds, "kind"))))))));
	fill($("#loops"), ["Loop", "State"],
		(i.loops ?? []).sort((a, b) => b.value - a.value).map(l => [soft(l.name), l.value
		? signed("ready", "runs") : signed("done", "waits for its first object")]),
	"no control loops are reported");
	fill($("#hooks"), ["Webhook", "Asks", "If it fails"], (i.webhooks ?? []).map(h => [
		el("a", {href: objectHash({group: "admissionregistration.k8s.io", version: "v1",
			resource: h.kind + "webhookconfigurations"}, "", h.configuration)}, soft(h.name)),
		soft(h.asks), h.policy === "Ignore" ? "it is left out" : "the request is refused"]),
	"no webhooks");
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

$("#refresh").addEventListener("click", () => showInventory(shown));
