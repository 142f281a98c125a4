// The script of the dashboard. Each view has a function that it calls when it is entered, and at
// most one stream of events, which is closed when the view is left or the page is hidden.

import {common} from "./compare.js";

const $ = (selector, inside = document) => inside.querySelector(selector);

// el makes an element. Children that are not nodes become text, never HTML.
function el(tag, attributes = {}, ...children) {
	const e = document.createElement(tag);
	for (const [name, value] of Object.entries(attributes)) {
		if (name.startsWith("on")) e.addEventListener(name.slice(2), value);
		else if (value === true) e.setAttribute(name, "");
		else if (value !== false && value != null) e.setAttribute(name, value);
	}
	e.append(...children.filter(c => c != null));
	return e;
}

function say(selector, sentence) {
	const e = $(selector);
	e.textContent = sentence;
	e.hidden = !sentence;
}

function time(nanoseconds) {
	if (nanoseconds < 1e6) return Math.round(nanoseconds / 1e3) + " µs";
	if (nanoseconds < 1e9) return (nanoseconds / 1e6).toFixed(nanoseconds < 1e7 ? 2 : 1) + " ms";
	return (nanoseconds / 1e9).toFixed(2) + " s";
}

const colorOf = code => code >= 500 || code === 0 ? "bad" : code >= 400 ? "fair" : "good";

// ask returns what the dashboard answers. It throws the sentence of a refusal.
async function ask(path, body) {
	const options = body === undefined ? {} : {
		method: "POST", body: JSON.stringify(body),
		headers: {"Content-Type": "application/json", "Kinproc-Dashboard": "1"},
	};
	let response;
	try {
		response = await fetch(path, options);
	} catch {
		throw "The dashboard does not answer. Is the control plane still running?";
	}
	if (!response.ok) throw (await response.text()).trim();
	return response.json();
}

// The stream of the view.

let source = null;

function listen(path, handlers, lost) {
	hush();
	source = new EventSource(path);
	for (const [event, handle] of Object.entries(handlers)) {
		source.addEventListener(event, e => handle(JSON.parse(e.data)));
	}
	source.onerror = () => lost("The connection to the dashboard is lost. Is it still running?");
	source.onopen = () => lost("");
}

function hush() {
	source?.close();
	source = null;
}

// The chain.

const places = [...document.querySelectorAll("[data-place]")].map(e => e.dataset.place);
const maxRows = 60, maxDots = 60, dotsPerEvent = 8;
let recent = []; // {at, groups, dropped}: what passed in the last 10 seconds
let paused = false;

function enterChain() {
	if (paused) return hush();
	const query = new URLSearchParams(new FormData($("#filter")));
	listen("/live?" + query, {
		passed: showPassed,
		failed: sentence => say("#live-failed", sentence),
	}, sentence => say("#live-failed", sentence));
}

function showPassed(event) {
	const at = performance.now();
	recent.push({at, groups: event.groups ?? [], dropped: event.dropped});
	const rows = document.createDocumentFragment();
	for (const r of (event.requests ?? []).toReversed()) rows.append(requestRow(r));
	const body = $("#requests tbody");
	// The list must not move away from under the keyboard.
	if (!body.contains(document.activeElement)) {
		body.prepend(rows);
		while (body.rows.length > maxRows) body.lastElementChild.remove();
	}
	$("#requests-empty").hidden = body.rows.length > 0;
	(event.groups ?? []).slice(0, dotsPerEvent).forEach(sendDot);
}

function requestRow(r) {
	return el("tr", {class: "choose", onclick: () => openRequest(r)},
		el("td", {}, r.method),
		el("td", {}, el("button", {class: "path", title: r.path}, r.path)),
		el("td", {class: "wide", title: r.user}, r.user),
		el("td", {class: colorOf(r.code)}, r.code),
		el("td", {class: "number"}, time(r.took)));
}

// sendDot lets a dot pass through the picture to where the requests of a group ended.
function sendDot(group) {
	const dots = $(".dots");
	if (dots.children.length >= maxDots || matchMedia("(prefers-reduced-motion: reduce)").matches) return;
	const frame = dots.getBoundingClientRect();
	const vertical = frame.width < 800;
	const way = places.slice(0, places.indexOf(group.end) + 1).map(place => {
		const box = $(`[data-place="${place}"]`).getBoundingClientRect();
		return vertical ? [frame.width - 16, box.top - frame.top + box.height / 2]
			: [box.left - frame.left + box.width / 2, box.bottom - frame.top + 13];
	});
	const dot = el("i", {class: `dot c${group.class}${group.count > 5 ? " many" : ""}`});
	dots.append(dot);
	const frames = way.map(([x, y]) => ({transform: `translate(${x}px, ${y}px)`, opacity: 1}));
	frames.push({...frames.at(-1), opacity: 0});
	dot.animate(frames, {duration: 130 * way.length, delay: Math.random() * 200, easing: "linear"})
		.finished.then(() => dot.remove(), () => dot.remove());
}

// showRates shows what the recent events add up to.
function showRates() {
	const now = performance.now();
	recent = recent.filter(r => now - r.at < 10000);
	const counts = new Map(), passedBy = new Map(), endedAt = new Set();
	let perSecond = 0, dropped = 0;
	for (const {at, groups, dropped: missing} of recent) {
		dropped += missing;
		for (const g of groups) {
			const key = `${g.verb}\n${g.resource}\n${g.end}\n${g.class}`;
			counts.set(key, {...g, count: g.count + (counts.get(key)?.count ?? 0)});
			if (now - at > 2000) continue;
			perSecond += g.count / 2;
			endedAt.add(g.end);
			for (const place of places.slice(0, places.indexOf(g.end) + 1)) {
				passedBy.set(place, g.count / 2 + (passedBy.get(place) ?? 0));
			}
		}
	}
	for (const place of places) {
		const box = $(`[data-place="${place}"]`);
		const rate = passedBy.get(place) ?? 0;
		$(".rate", box).textContent = rate ? `${Math.ceil(rate)}/s` : "";
		box.classList.toggle("ended", endedAt.has(place));
	}
	if (paused) return;
	$("#pace").textContent = `${Math.ceil(perSecond)} requests/s` +
		(dropped ? `, and ${dropped} that came too fast to be followed` : "");
	const top = [...counts.values()].sort((a, b) => b.count - a.count).slice(0, 14);
	$("#groups tbody").replaceChildren(...top.map(g => el("tr", {},
		el("td", {}, g.verb), el("td", {}, g.resource), el("td", {class: "wide"}, g.end === "not found" ? "404" : g.end),
		el("td", {class: colorOf(g.class * 100)}, g.class ? g.class + "xx" : "none"),
		el("td", {class: "number"}, g.count))));
}

async function openRequest(r) {
	const opener = document.activeElement;
	$("#request-title").textContent = `${r.method} ${r.path}`;
	try {
		$("#request-body").replaceChildren(...showAnswered(await ask("/live/" + r.id)));
	} catch (sentence) {
		$("#request-body").replaceChildren(el("p", {class: "problem"}, sentence));
	}
	const dialog = $("#request");
	dialog.onclose = () => opener?.isConnected && opener.focus();
	dialog.showModal();
}

// One request.

// showAnswered returns the elements for a request with its steps.
function showAnswered(a) {
	const outcome = el("p", {class: "outcome"}, el("b", {class: colorOf(a.code)}, a.code),
		` ${a.bytes} bytes in ${time(a.took)}${a.user ? ", as " + a.user : ""}`);
	if (!a.steps?.length) {
		return [outcome, el("p", {class: "empty"},
			"There is no trace: the user may not see it, or the server is not kinproc.")];
	}
	let object = "";
	const list = el("ol", {class: "steps", "aria-label": "Steps of the request"});
	for (const step of a.steps) {
		list.append(stepRow(step, a, object));
		if (step.object) object = step.object;
	}
	return [outcome, list];
}

function stepRow(step, a, before) {
	const bar = el("span", {class: "filled"});
	const total = Math.max(a.took, ...a.steps.map(s => s.start + s.took));
	bar.style.left = 100 * step.start / total + "%";
	bar.style.width = Math.max(100 * step.took / total, .5) + "%";
	return el("li", {},
		el("b", {}, step.at),
		el("span", {class: "why"}, step.decision + (step.reason ? ` (${step.reason})` : "")),
		el("span", {class: "track", "aria-hidden": true}, bar),
		el("span", {class: "time"}, time(step.took)),
		change(step, before));
}

// change returns what a step changed: its patch, and the object before and after it.
function change(step, before) {
	if (!step.patch && (!step.object || step.object === before)) return null;
	const what = el("details", {class: "change"}, el("summary", {}, step.patch ? "what it changed" : "the object"));
	if (step.patch) {
		what.append(el("pre", {class: "code"}, step.patch.map(p => JSON.stringify(p)).join("\n")));
	}
	if (step.object) what.append(sides(before, step.object));
	return what;
}

// shownLines bounds how many lines of an object are shown.
const shownLines = 5000;

// sides shows an object before and after a step, with the lines that differ marked.
function sides(before, after) {
	const [old, now] = [before.split("\n"), after.split("\n")];
	const same = before ? common(old, now) : null;
	const column = (title, lines, kept, mark) => {
		const text = el("pre", {class: "code", tabindex: 0, "aria-label": title});
		lines.slice(0, shownLines).forEach((line, i) =>
			text.append(el("span", {class: same && !kept.has(i) ? `line ${mark}` : "line"}, line)));
		if (lines.length > shownLines) text.append(el("span", {class: "line"}, `… ${lines.length - shownLines} more lines`));
		return el("div", {}, el("h4", {}, title), text);
	};
	return el("div", {class: "sides"},
		before ? column("before", old, same.old, "del") : null,
		column(before ? "after" : "the object", now, same?.now, "add"));
}

// The inventory.

function fill(selector, head, rows, empty) {
	$(selector).replaceChildren(
		el("thead", {}, el("tr", {}, ...head.map(h => el("th", {}, h)))),
		el("tbody", {}, ...(rows.length ? rows.map(cells => el("tr", {}, ...cells.map(c =>
			c instanceof Node ? el("td", {}, c) : el("td", {}, c ?? "")))) :
			[el("tr", {}, el("td", {colspan: head.length, class: "empty"}, empty))])));
}

const state = (text, good) => el("span", {class: good ? "good" : "bad"}, text);

const roles = {
	aggregator: "passes requests to extension API servers, and serves APIServices itself",
	core: "serves the built-in kinds",
	extensions: "serves CustomResourceDefinitions and custom resources",
};

async function enterInventory() {
	hush();
	$("#inventory-state").textContent = "loading…";
	try {
		const i = await ask("/inventory");
		showInventory(i);
		const counts = await ask("/counts");
		fill("#counts", ["Kind", "Group", "Objects"], counts.sort((a, b) => b.count - a.count).map(c =>
			[el("a", {href: objectsHash(c)}, c.kind), c.group, c.count]), "no objects");
		$("#inventory-state").textContent = "as of " + new Date().toLocaleTimeString();
	} catch (sentence) {
		$("#inventory-state").textContent = sentence;
	}
}

function showInventory(i) {
	$("#problems").replaceChildren(...(i.problems ?? []).map(p => el("p", {class: "problem"}, p)));
	$("#versions").replaceChildren(...["aggregator", "core", "extensions"].map(link =>
		el("div", {class: "card"}, el("h4", {}, link), el("p", {class: "empty"}, roles[link]),
			el("ul", {tabindex: 0, "aria-label": `Group versions that the ${link} serves`},
				...(i.versions ?? []).filter(v => v.link === link).map(v => el("li", {}, v.version,
					el("span", {}, v.by ? "→ " + v.by : v.kinds === 1 ? "1 kind" : `${v.kinds} kinds`)))))));
	fill("#loops", ["Loop", "State"], (i.loops ?? []).map(l => [l.name,
		l.value ? state("runs", true) : "waits for its first object"]), "no control loops are reported");
	fill("#watches", ["Resource", "Watches"], (i.watches ?? []).map(w => [w.name, w.value]), "no watches");
	fill("#nodes", ["Node", "State", "Capacity"], (i.nodes ?? []).map(n => [
		n.name + (n.simulated ? " (simulated)" : ""), state(n.state, n.state === "Ready"), n.capacity]), "no nodes");
	const good = c => (c.status === "True") !== (c.type === "NonStructuralSchema" || c.type === "Terminating");
	const conditions = list => (list ?? []).sort((a, b) => good(a) - good(b)).map(c => [c.object,
		state(`${c.type} ${c.status}`.trim(), good(c)), c.reason + (c.message ? `: ${c.message}` : "")]);
	fill("#crds", ["Definition", "Condition", "Reason"], conditions(i.definitions), "no definitions");
	fill("#apiservices", ["APIService", "Condition", "Reason"], conditions(i.apiServices), "no APIServices");
}

// The object browser.

let kinds = [];

const objectsHash = k => "#objects?" + new URLSearchParams(
	{group: k.group, version: k.version, resource: k.resource});

async function enterObjects(query) {
	hush();
	const form = $("#selection");
	try {
		kinds = await ask("/kinds");
	} catch (sentence) {
		return say("#objects-failed", sentence);
	}
	const wanted = kinds.findIndex(k => k.group === (query.get("group") ?? "") &&
		k.resource === (query.get("resource") ?? "pods"));
	form.kind.replaceChildren(...kinds.map((k, i) =>
		el("option", {value: i, selected: i === wanted}, k.group ? `${k.kind} · ${k.group}` : k.kind)));
	if (wanted < 0) return say("#objects-failed", `The control plane serves no ${query.get("resource")}.`);
	const k = kinds[wanted];
	form.namespace.value = query.get("namespace") ?? "";
	form.namespace.disabled = !k.namespaced;
	$("#objects-title").textContent = k.kind;
	if (!query.get("name")) {
		$("#object").hidden = true;
		$("#object-title").textContent = "Select an object to see it";
	}
	const selection = new URLSearchParams({...k, namespace: k.namespaced ? form.namespace.value : "",
		name: query.get("name") ?? "", inside: query.get("inside") ?? ""});
	listen("/objects?" + selection, {
		list: t => showList(t, k, query),
		object: showObject,
		failed: sentence => say("#objects-failed", sentence),
	}, sentence => say("#objects-failed", sentence));
}

let shownList = null;

function showList(table, k, query) {
	say("#objects-failed", "");
	shownList = {table, k, query};
	const contains = $("#selection").elements.contains.value;
	const rows = table.rows.filter(r => r.name.includes(contains));
	$("#objects-state").textContent = (rows.length === 1 ? "1 object" : `${rows.length} objects`) +
		(table.more ? `, and ${table.more} more that are not shown` : ", live");
	const focused = document.activeElement?.dataset?.key;
	const spaced = k.namespaced && !query.get("namespace");
	$("#list thead").replaceChildren(el("tr", {}, ...(spaced ? [el("th", {}, "Namespace")] : []),
		...(table.columns ?? []).map(c => el("th", {}, c))));
	$("#list tbody").replaceChildren(...rows.map(r => {
		const key = `${r.namespace}/${r.name}`;
		const chosen = r.name === query.get("name") && r.namespace === (query.get("inside") ?? "");
		const choose = () => {
			const next = new URLSearchParams(query);
			for (const [name, value] of Object.entries({group: k.group, version: k.version,
				resource: k.resource, inside: r.namespace, name: r.name})) next.set(name, value);
			location.hash = "objects?" + next;
		};
		return el("tr", {class: "choose", "aria-selected": chosen, onclick: choose},
			...(spaced ? [el("td", {}, r.namespace)] : []),
			...(r.cells ?? []).map((c, i) => i ? el("td", {}, String(c ?? ""))
				: el("td", {}, el("button", {"data-key": key}, String(c)))));
	}));
	if (focused) $(`#list button[data-key="${CSS.escape(focused)}"]`)?.focus();
}

function showObject(o) {
	$("#object-title").textContent = o.namespace ? `${o.namespace}/${o.name}` : o.name;
	const text = $("#object");
	text.hidden = false;
	if (text.textContent !== o.yaml) text.textContent = o.yaml;
}

// Try it.

async function send(event) {
	event.preventDefault();
	const form = event.target;
	say("#try-failed", "");
	$("#answer").replaceChildren(el("p", {class: "empty"}, "sending…"));
	try {
		const a = await ask("/try", {
			method: form.elements.method.value, path: form.path.value.trim(), body: form.body.value,
			as: form.as.value.trim(),
			groups: form.groups.value.split(",").map(g => g.trim()).filter(Boolean),
		});
		$("#answer").replaceChildren(el("h3", {}, "The answer"), ...showAnswered(a),
			el("pre", {class: "code", tabindex: 0, "aria-label": "Body of the answer"}, a.body ?? ""));
	} catch (sentence) {
		$("#answer").replaceChildren();
		say("#try-failed", sentence);
	}
}

// The guided walk.

const explained = {
	"authentication": "A client certificate, a token or the headers of a proxy say who asks. Without any of them, the user is anonymous.",
	"flow control": "Priority and fairness finds the flow schema of the request. Its priority level says how many requests run at once, and the others wait in queues.",
	"authorization": "RBAC looks for a role that allows the verb on the resource. Members of system:masters may do everything.",
	"aggregator": "The first server looks for the APIService of the group version. If that names a service, the request goes to an extension API server; otherwise to the next server.",
	"core": "The second server has the built-in kinds. Pod is one of them, so the request goes no further.",
	"extensions": "The third server has the kinds that CustomResourceDefinitions define.",
	"body": "The body of the request is read, up to a limit.",
	"decoding": "The body becomes an object of the version that the server works with, and gets the defaults of its fields.",
	"patching": "The patch is applied to the object that etcd has.",
	"strategy": "The strategy of the kind prepares the object: it resets what clients may not set, such as the status.",
	"mutating admission": "Plugins and webhooks may change the object. Each patch is what one of them changed.",
	"webhook": "A webhook outside of the server was asked.",
	"validation": "The strategy of the kind checks the fields of the object. It lists everything that is wrong.",
	"validating admission": "Plugins, policies and webhooks may refuse the object now, but not change it.",
	"storage encoding": "The object is converted to its storage version and encoded, in protobuf for built-in kinds.",
	"etcd": "etcd reads or writes a key. A write is acknowledged when it is on the disk.",
	"storage decoding": "What etcd has stored becomes an object again.",
	"encoding": "The object is converted to the version that the client asked for, and encoded for the response.",
};

let walked = null, stop = 0;

async function startWalk() {
	say("#walk-failed", "");
	try {
		walked = await ask("/walk", {});
	} catch (sentence) {
		return say("#walk-failed", sentence);
	}
	stop = 0;
	showStop();
}

function showStop() {
	const steps = walked.steps ?? [];
	if (!steps.length) {
		$("#walk-steps").replaceChildren(...showAnswered(walked));
		return;
	}
	const step = steps[stop];
	$("#walk-start").textContent = "Create another one";
	$("#walk-back").hidden = $("#walk-next").hidden = false;
	$("#walk-back").disabled = stop === 0;
	$("#walk-next").disabled = stop === steps.length - 1;
	$("#walk-at").textContent = `step ${stop + 1} of ${steps.length}`;
	const before = steps.slice(0, stop).findLast(s => s.object)?.object ?? "";
	const stopped = change(step, before);
	if (stopped) stopped.open = true;
	const all = showAnswered(walked);
	const list = all[1];
	[...list.children].forEach((row, i) => {
		row.classList.toggle("now", i === stop);
		if (i === stop) row.setAttribute("aria-current", "step");
		$(".change", row)?.remove();
	});
	$("#walk-steps").replaceChildren(el("div", {class: "stop"}, el("h3", {}, step.at),
		el("p", {}, explained[step.at] ?? ""), el("p", {class: "empty"},
			`${step.decision}${step.reason ? ` (${step.reason})` : ""}, in ${time(step.took)}`),
		stopped), el("h3", {}, "The whole way"), all[0], list,
	walked.created ? el("p", {class: "empty"}, "It is kept as ", el("a", {href: "#objects?" +
		new URLSearchParams({resource: "pods", inside: "default", name: walked.created})},
	`default/${walked.created}`), ".") : null);
}

function move(by) {
	if (!walked?.steps) return;
	stop = Math.min(Math.max(stop + by, 0), walked.steps.length - 1);
	showStop();
}

// The views.

const views = {
	chain: enterChain, inventory: enterInventory, objects: enterObjects,
	try: hush, walk: hush,
};

function enter() {
	const [name, query] = location.hash.slice(1).split("?");
	const view = name in views ? name : "chain";
	for (const section of document.querySelectorAll("main > section")) {
		section.hidden = section.id !== "view-" + view;
	}
	for (const link of document.querySelectorAll("nav a")) {
		if (link.hash === "#" + view) link.setAttribute("aria-current", "page");
		else link.removeAttribute("aria-current");
	}
	if (document.hidden) return hush();
	views[view](new URLSearchParams(query));
}

// later returns a function that calls f once no more calls come.
function later(f) {
	let timer;
	return () => {
		clearTimeout(timer);
		timer = setTimeout(f, 300);
	};
}

function selectKind() {
	const form = $("#selection");
	const k = kinds[form.kind.value];
	if (!k) return;
	const query = new URLSearchParams({group: k.group, version: k.version, resource: k.resource});
	if (form.namespace.value.trim()) query.set("namespace", form.namespace.value.trim());
	location.hash = "objects?" + query;
}

addEventListener("hashchange", () => {
	enter();
	scrollTo(0, 0);
});
document.addEventListener("visibilitychange", enter);
for (const form of document.forms) form.addEventListener("submit", e => e.preventDefault());
$("#filter").addEventListener("input", later(() => {
	recent = [];
	$("#requests tbody").replaceChildren();
	enterChain();
}));
$("#pause").addEventListener("click", e => {
	paused = !paused;
	e.target.setAttribute("aria-pressed", paused);
	e.target.textContent = paused ? "Resume" : "Pause";
	if (paused) $("#pace").textContent = "paused";
	enterChain();
});
$("#skip").addEventListener("click", e => {
	e.preventDefault(); // the part of the address after # is the view
	$("#main").focus();
});
$("#close").addEventListener("click", () => $("#request").close());
$("#refresh").addEventListener("click", enterInventory);
$("#selection").kind.addEventListener("change", selectKind);
$("#selection").namespace.addEventListener("input", later(selectKind));
$("#selection").elements.contains.addEventListener("input", () =>
	shownList && showList(shownList.table, shownList.k, shownList.query));
$("#attempt").addEventListener("submit", send);
$("#walk-start").addEventListener("click", startWalk);
$("#walk-back").addEventListener("click", () => move(-1));
$("#walk-next").addEventListener("click", () => move(1));
setInterval(showRates, 500);
enter();
