// The chain: the requests of all clients on their way.

import {showBox} from "./box.js";
import {$, $$, changed, el, go, hash, hush, later, listen, query, say} from "./dom.js";
import {codeSign, count, path, time} from "./format.js";
import {showInventory} from "./inventory.js";
import {boxes, choose, sendDot, showFlow, showWalk} from "./picture.js";
import {closeRequest, openRequest} from "./request.js";
import {enterWalk, stepAt} from "./walk.js";

const maxRows = 100, dotsPerEvent = 8, seconds = 10;
let recent = []; // {at, groups, dropped, hidden}: what passed in the last seconds
let paused = false, listened = null, hung = null;

const filters = ["method", "path", "user", "agent", "code", "slow", "at", "loops"];
const form = $("#filter").elements;

const tabOf = q => ["inventory", "walk"].includes(q.get("tab")) ? q.get("tab") : "";

export function enterChain() {
	const q = query(), tab = tabOf(q);
	if (q.has("end")) return go(changed({end: "", at: q.get("end")}), true); // an old address
	const at = tab || !boxes.some(b => b.dataset.box === q.get("at")) ? "" : q.get("at");
	for (const link of $$("#view-chain .tabs a")) {
		if (link.dataset.tab === tab) link.setAttribute("aria-current", "page");
		else link.removeAttribute("aria-current");
	}
	$("#traffic").hidden = tab !== "";
	$("#walk").hidden = tab !== "walk";
	$("#by-kind").hidden = at !== "";
	$("#under").classList.toggle("boxed", at !== "");
	choose(at);
	showBox(at);
	const hangs = tab === "inventory" ? "all" : at;
	if (hung !== hangs) showInventory(hangs); // not at each change of the filter
	hung = hangs;
	if (tab === "walk") enterWalk();
	else showWalk(null);
	for (const name of filters) {
		if (name === "at" || form[name] === document.activeElement) continue;
		if (name === "loops") form.loops.checked = q.has("loops");
		else form[name].value = q.get(name) ?? "";
	}
	const selected = new URLSearchParams(filters.map(f => [f, f === "at" ? at : q.get(f)])
		.filter(([, value]) => value));
	const problem = filterProblem(selected);
	say("#live-failed", problem);
	if (!problem && !paused && listened !== String(selected)) {
		listened = String(selected);
		recent = [];
		$("#requests tbody").replaceChildren();
		listen("live", "/live?" + selected, {
			passed: showPassed,
			flow: showFlow,
			failed: sentence => say("#live-failed", sentence),
		}, sentence => say("#live-failed", sentence));
	}
	$("#filter-clear").hidden = selected.size === (at ? 1 : 0);
	showRates();
	if (q.get("request")) openRequest(q.get("request"), q.get("with"));
	else closeRequest();
}

// filterProblem says what is wrong with a filter. A stream that is refused cannot say it.
function filterProblem(q) {
	if (q.get("code") && !/^[1-5](xx|\d\d)?$/i.test(q.get("code"))) {
		return `“${q.get("code")}” is not a status code: use one such as 404, or 4xx.`;
	}
	if (q.get("slow") && !(Number(q.get("slow")) >= 0)) {
		return `“${q.get("slow")}” is not a number of milliseconds.`;
	}
	return "";
}

export function leaveChain() {
	listened = hung = null;
	closeRequest();
}

function showPassed(event) {
	const at = performance.now();
	recent.push({at, groups: event.groups ?? [], dropped: event.dropped, hidden: event.hidden});
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
	const open = changed({request: r.id, with: ""});
	return el("tr", {class: "choose", "data-id": r.id, onclick: () => go(open)},
		el("td", {}, r.method),
		el("td", {class: "pathcell"}, el("a", {href: open}, path(r.path))),
		el("td", {class: "wide", title: r.client}, r.client),
		el("td", {class: "wider", title: r.user}, r.user),
		el("td", {}, codeSign(r.code)),
		el("td", {class: "number"}, time(r.took)));
}

// latest returns the requests in the list, for those who want to compare.
export const latest = () => $$("#requests tbody tr").map(row => ({id: row.dataset.id,
	text: `${row.cells[0].innerText} ${$(".path", row).title}`}));

// percentile returns the upper bound of a percentile, in nanoseconds, of a count by buckets.
export function percentile(took, share) {
	const buckets = [...took].sort(([a], [b]) => a - b);
	let left = share * buckets.reduce((n, [, c]) => n + c, 0);
	for (const [bucket, c] of buckets) {
		left -= c;
		if (left <= 1e-9) return 2 ** (bucket / 4) * 1000;
	}
	return 0;
}

const merge = (into, took) => {
	for (const [bucket, n] of Object.entries(took ?? {})) {
		into.set(Number(bucket), (into.get(Number(bucket)) ?? 0) + n);
	}
	return into;
};

// showRates shows what the recent events add up to.
export function showRates() {
	const now = performance.now();
	recent = recent.filter(r => now - r.at < seconds * 1000);
	const groups = new Map(), all = new Map();
	let perSecond = 0, dropped = 0, hidden = 0;
	for (const {at, groups: some, dropped: missing, hidden: loops} of recent) {
		dropped += missing;
		hidden += loops;
		for (const g of some) {
			const key = `${g.verb}\n${g.resource}\n${g.end}\n${g.class}`;
			const sum = groups.get(key) ?? {...g, count: 0, times: new Map()};
			sum.count += g.count;
			merge(sum.times, g.took);
			merge(all, g.took);
			groups.set(key, sum);
			if (now - at <= 2000) perSecond += g.count / 2;
		}
	}
	if (paused) return;
	$("#pace").textContent = `${Math.ceil(perSecond)} requests/s` +
		(dropped ? `, and ${dropped} that came too fast to be followed` : "");
	$("#latency").textContent = all.size ? `p50 ${time(percentile(all, .5))} · p95 ` +
		`${time(percentile(all, .95))} · p99 ${time(percentile(all, .99))}` : "";
	$("#hidden").textContent = hidden ? `${count(hidden, "request")} of control loops hidden` : "";
	const top = [...groups.values()].sort((a, b) => b.count - a.count).slice(0, 24);
	$("#groups tbody").replaceChildren(...top.map(g => el("tr", {},
		el("td", {}, g.verb), el("td", {class: "ellipsis", title: g.resource}, g.resource),
		el("td", {class: "wider"}, g.end === "not found" ? "404" : g.end),
		el("td", {}, codeSign(g.class * 100, g.class ? g.class + "xx" : "none")),
		el("td", {class: "number"}, g.count),
		el("td", {class: "number"}, time(percentile(g.times, .5))),
		el("td", {class: "number wide"}, time(percentile(g.times, .95))),
		el("td", {class: "number wider"}, time(percentile(g.times, .99))))));
}

for (const name of ["path", "user", "agent", "code", "slow"]) {
	const filter = later(value => go(changed({[name]: value}), true));
	form[name].addEventListener("input", () => filter(form[name].value.trim()));
}
form.method.addEventListener("change", e => go(changed({method: e.target.value}), true));
form.loops.addEventListener("change", e =>
	go(changed({loops: e.target.checked ? 1 : ""}), true));
for (const box of boxes) {
	const {box: name} = box.dataset;
	box.addEventListener("click", () => {
		const q = query();
		if (tabOf(q) === "walk") return stepAt(name);
		go(changed({tab: "", at: q.get("at") === name ? "" : name}));
	});
}
$("#filter-clear").addEventListener("click", () =>
	go(hash("chain", {at: query().get("at")})));
$("#pause").addEventListener("click", e => {
	paused = !paused;
	e.target.setAttribute("aria-pressed", paused);
	e.target.textContent = paused ? "Resume" : "Pause";
	if (paused) {
		hush("live");
		$("#pace").textContent = "paused";
	}
	listened = null;
	enterChain();
});
setInterval(() => !$("#view-chain").hidden && !document.hidden && showRates(), 500);
