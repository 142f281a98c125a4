// One object: as YAML, with its events, its history, and the tree of its owners and dependents.

import {actions} from "./change.js";
import {$, ask, changed, el, hush, listen, objectHash, query, say} from "./dom.js";
import {age, clock, sign, signed, soft} from "./format.js";
import {difference, View} from "./yaml.js";

const tabs = {yaml: "YAML", events: "Events", history: "History", tree: "Owners"};

let shown = null; // {key, k, inside, name, object, view, at}: the object that is shown
let again = 0;

const parametersOf = o => new URLSearchParams({group: o.k.group, version: o.k.version,
	resource: o.k.resource, inside: o.inside, name: o.name});

export function closeObject() {
	clearInterval(again);
	hush("object");
	shown = null;
	$("#object").hidden = true;
}

// showObjectOf shows the object of an address, in the tab of the address.
export function showObjectOf(k, q) {
	const inside = q.get("inside") ?? "", name = q.get("name");
	const key = `${k.group}/${k.resource}/${inside}/${name}`;
	const tab = q.get("tab") in tabs ? q.get("tab") : "yaml";
	$("#object").hidden = false;
	if (shown?.key !== key) {
		shown = {key, k, inside, name, object: null, view: new View(`${k.kind} ${name} as YAML`)};
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
	$("#object-close").href = changed({inside: "", name: "", tab: "", rev: ""});
	$("#object-tabs").replaceChildren(...Object.entries(tabs).map(([id, title]) =>
		el("a", {href: changed({tab: id === "yaml" ? "" : id, rev: ""}),
			"aria-current": id === tab ? "page" : null}, title)));
	shown.tab = tab;
	if (shown.object) showTab();
}

function received(o, object) {
	if (o !== shown) return;
	const first = !o.object;
	o.object = object;
	say("#object-failed", object.missing ? `It is gone: ${object.missing}` : "");
	if (first) $("#object-actions").replaceChildren(...actions(o, () => shown === o ? o.object : null));
	$("#object-actions").hidden = Boolean(object.missing);
	showTab();
}

async function showTab() {
	const o = shown, tab = o.tab;
	const show = {yaml: yamlTab, events: eventsTab, history: historyTab, tree: treeTab}[tab];
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

async function eventsTab(o) {
	if (o.k.resource === "events") return el("p", {class: "empty"}, "An event has no events.");
	const t = await ask(`/events?${parametersOf(o)}&uid=${encodeURIComponent(o.object.uid)}`);
	if (!t.rows.length) return el("p", {class: "empty"}, "There are no events about it.");
	return el("ol", {class: "events"}, ...t.rows.map(r => el("li", {},
		el("p", {}, r.state ? signed(r.state, r.cells[2]) : el("b", {}, r.cells[2]),
			el("span", {class: "quiet"}, ` ${age(r.at)} ago` +
				(r.cells[5] > 1 ? `, ${r.cells[5]} times` : "") + (r.cells[6] ? `, ${r.cells[6]}` : ""))),
		el("p", {class: "message"}, r.cells[4]))));
}

// who says who wrote a version.
export function who(v) {
	if (!v.user) return "somebody, before the server started or not by a request";
	const user = v.as ? `${v.user} (impersonated by ${v.as})` : v.user;
	return v.loop ? v.client : `${v.manager || v.client || "an unnamed client"} as ${user}`;
}

async function historyTab(o) {
	if (o.historyOf !== o.object) {
		o.history = await ask("/history?" + parametersOf(o));
		o.historyOf = o.object;
	}
	const all = o.history.versions;
	if (!all.length) return el("p", {class: "empty"}, "No version of it is kept.");
	const wanted = query().get("rev");
	let at = all.findIndex(v => String(v.revision) === wanted);
	if (at < 0) at = all.length - 1;
	const part = el("div", {class: "version"});
	const slider = el("input", {type: "range", min: 0, max: all.length - 1, value: at, id: "slider",
		"data-key": "slider", "aria-label": "Version"});
	const list = el("ol", {class: "versions", "aria-label": "Versions"}, ...all.map((v, i) =>
		el("li", {}, el("a", {href: changed({rev: i === all.length - 1 ? "" : v.revision}),
			"data-key": `rev ${v.revision}`}, el("span", {class: "number"}, v.revision),
		el("span", {class: "quiet"}, v.time ? clock(v.time) : "–"),
		el("span", {class: v.event}, v.event), el("span", {class: "who"}, who(v))))));
	const show = i => {
		const v = all[i], before = all[i - 1];
		slider.setAttribute("aria-valuetext", `revision ${v.revision}, ${v.event}, by ${who(v)}`);
		[...list.children].forEach((item, n) => n === i
			? item.firstChild.setAttribute("aria-current", "true")
			: item.firstChild.removeAttribute("aria-current"));
		const text = v.event === "deleted" ? null
			: before?.yaml && before.event !== "deleted" ? difference(before.yaml, v.yaml ?? "") : null;
		part.replaceChildren(
			el("p", {}, el("b", {}, `${i + 1} of ${all.length}`), `: revision ${v.revision}, `,
				el("span", {class: v.event}, v.event), v.time ? ` at ${clock(v.time)}` : "", ` by ${who(v)}`,
				v.verb ? el("span", {class: "quiet"}, ` (${v.verb})`) : null),
			el("ul", {class: "changes"}, ...(v.changes ?? []).map(c => el("li", {}, soft(c)))),
			text ?? "");
		const full = new View(`revision ${v.revision} as YAML`);
		full.show(v.yaml ?? "");
		part.append(el("details", {}, el("summary", {}, "the whole object at this revision"),
			full.element));
	};
	slider.addEventListener("input", () => show(Number(slider.value)));
	slider.addEventListener("change", () => {
		const i = Number(slider.value);
		history.replaceState(null, "",
			changed({rev: i === all.length - 1 ? "" : all[i].revision}));
	});
	show(at);
	return el("div", {class: "history"},
		el("label", {}, o.history.compacted || o.history.more
			? "The versions that are still kept, oldest first" : "All versions, oldest first", slider),
		part, list);
}

async function treeTab(o) {
	const t = await ask("/tree?" + parametersOf(o));
	const branch = b => el("li", {},
		el("span", {class: "leaf"}, sign(b.state), el("span", {class: "quiet"}, b.kind + " "),
			b.missing ? el("span", {class: "bad"}, `${b.name} does not exist`)
				: el("a", {href: objectHash(b, b.namespace, b.name, {tab: "tree"}),
					"aria-current": b.here ? "true" : null}, soft(b.name))),
		b.owned ? el("ul", {}, ...b.owned.map(branch)) : null);
	return el("div", {}, el("ul", {class: "tree"}, branch(t.root)),
		!t.root.owned ? el("p", {class: "empty"}, "It has no owner, and owns nothing.") : "",
		t.more ? el("p", {class: "empty"}, "There are more objects than are shown.") : "");
}

