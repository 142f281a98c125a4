// One object: as YAML, with its log, its events, its history, and the tree of its owners and
// dependents.

import {actions} from "./change.js";
import {objectCommand, showCommand} from "./command.js";
import {$, ask, changed, el, hush, listen, objectHash, query, say} from "./dom.js";
import {age, sign, signed, soft} from "./format.js";
import {historyOf} from "./history.js";
import {Log} from "./logs.js";
import {timeOf} from "./moment.js";
import {hasUsage, sparks, Usage} from "./usage.js";
import {View} from "./yaml.js";

const tabs = {yaml: "YAML", logs: "Logs", events: "Events", history: "History", tree: "Owners"};

// tabsOf returns the names of the tabs of a kind, now or at a revision.
export const tabsOf = (k, at) => Object.keys(tabs).filter(tab =>
	tab !== "logs" || k.group === "" && k.resource === "pods" && !at);

// unchosen removes from an address what is chosen in a tab of an object.
export const unchosen = {rev: "", versions: "", container: "", previous: "", still: ""};

let shown = null; // {key, k, inside, name, at, object, view, log, tab}: the object that is shown
let again = 0;

const usage = new Usage(u => $("#object-usage").replaceChildren(...sparks(u.samples)));

const parametersOf = o => new URLSearchParams({group: o.k.group, version: o.k.version,
	resource: o.k.resource, inside: o.inside, name: o.name, at: o.at});

export function closeObject() {
	clearInterval(again);
	hush("object");
	hush("logs");
	usage.stop();
	shown = null;
	$("#object").hidden = true;
}

// showObjectOf shows the object of an address, in the tab of the address.
export function showObjectOf(k, q) {
	const inside = q.get("inside") ?? "", name = q.get("name");
	const at = q.get("at") ?? "";
	const key = `${k.group}/${k.resource}/${inside}/${name}/${at}`;
	const tab = tabsOf(k, at).includes(q.get("tab")) ? q.get("tab") : "yaml";
	$("#object").hidden = false;
	if (shown?.key !== key) {
		hush("logs");
		shown = {key, k, inside, name, at, object: null, view: new View(`${k.kind} ${name} as YAML`),
			log: new Log(name)};
		$("#object-usage").replaceChildren();
		if (hasUsage(k) && !at) usage.of(parametersOf(shown));
		else usage.stop();
		$("#object-title").replaceChildren(soft(name));
		$("#object-kind").textContent = inside ? `${k.kind} in ${inside}` : k.kind;
		$("#object-actions").replaceChildren();
		$("#object-tab").replaceChildren(el("p", {class: "empty"}, "loading…"));
		say("#object-failed", "");
		const o = shown;
		listen("object", `/objects?${parametersOf(o)}&only=1`, {
			object: object => received(o, object),
			failed: sentence => say("#object-failed", sentence),
		}, sentence => say("#object-failed", sentence));
		clearInterval(again);
		again = setInterval(() => shown === o && !document.hidden && shown.tab === "events" &&
			showTab(), 3000); // an event is written after what it tells
	}
	$("#object-close").href = changed({inside: "", name: "", tab: "", ...unchosen});
	$("#object-tabs").replaceChildren(...tabsOf(k, at).map(id =>
		el("a", {href: tabHash(id), "aria-current": id === tab ? "page" : null}, tabs[id])));
	showCommand($("#object-command"), objectCommand(shown, tab, q));
	shown.tab = tab;
	if (tab !== "logs") shown.log.stop();
	if (shown.object) showTab();
}

// tabHash returns the address of a tab of the object that is shown.
export const tabHash = tab => changed({...unchosen, tab: tab === "yaml" ? "" : tab});

function received(o, object) {
	if (o !== shown) return;
	const first = !o.object;
	o.object = object;
	const missing = o.at ? "It cannot be shown as it was" : "It is gone";
	say("#object-failed", object.missing ? `${missing}: ${object.missing}` : "");
	if (first && !o.at) {
		$("#object-actions").replaceChildren(...actions(o, () => shown === o ? o.object : null));
	}
	$("#object-actions").hidden = Boolean(object.missing);
	showTab();
}

async function showTab() {
	const o = shown, tab = o.tab;
	const show = {yaml: yamlTab, logs: logsTab, events: eventsTab, history: historyTab, tree: treeTab}[tab];
	let content;
	try {
		content = await show(o);
	} catch (sentence) {
		content = el("p", {class: "problem"}, sentence);
	}
	const box = $("#object-tab");
	if (o !== shown || tab !== o.tab || content === box.firstChild) return;
	const focused = box.contains(document.activeElement) && document.activeElement.dataset.key;
	box.replaceChildren(content);
	if (focused) $(`[data-key="${CSS.escape(focused)}"]`, box)?.focus();
}

function yamlTab(o) {
	if (!o.object.missing) o.view.show(o.object.yaml);
	return o.view.element;
}

function logsTab(o) {
	if (!o.object.missing) o.log.show(parametersOf(o), o.object.containers ?? []);
	return o.log.element;
}

async function eventsTab(o) {
	if (o.k.resource === "events") return el("p", {class: "empty"}, "An event has no events.");
	const t = await ask(`/events?${parametersOf(o)}&uid=${encodeURIComponent(o.object.uid)}`);
	if (!t.rows.length) return el("p", {class: "empty"}, "There are no events about it.");
	return el("ol", {class: "events"}, ...t.rows.map(r => el("li", {},
		el("p", {}, r.state ? signed(r.state, r.cells[2]) : el("b", {}, r.cells[2]),
			el("span", {class: "quiet"}, ` ${age(r.at, timeOf(o.at))} ago` +
				(r.cells[5] > 1 ? `, ${r.cells[5]} times` : "") + (r.cells[6] ? `, ${r.cells[6]}` : ""))),
		el("p", {class: "message"}, r.cells[4]))));
}

async function historyTab(o) {
	if (o.historyOf !== o.object) {
		o.history = await ask("/history?" + parametersOf(o));
		o.historyOf = o.object;
	}
	return historyOf(o.history);
}

async function treeTab(o) {
	const t = await ask("/tree?" + parametersOf(o));
	const branch = b => el("li", {},
		el("span", {class: "leaf"}, sign(b.state), el("span", {class: "quiet"}, b.kind + " "),
			b.missing ? el("span", {class: "bad"}, `${b.name} does not exist`)
				: el("a", {href: objectHash(b, b.namespace, b.name, {tab: "tree", at: o.at}),
					"aria-current": b.here ? "true" : null}, soft(b.name))),
		b.owned ? el("ul", {}, ...b.owned.map(branch)) : null);
	return el("div", {}, el("ul", {class: "tree"}, branch(t.root)),
		!t.root.owned ? el("p", {class: "empty"}, "It has no owner, and owns nothing.") : "",
		t.more ? el("p", {class: "empty"}, "There are more objects than are shown.") : "");
}

