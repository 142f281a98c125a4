// The objects of a kind, and one of them.

import {listCommand, showCommand} from "./command.js";
import {$, $$, ask, changed, el, go, hush, later, listen, query, say}
	from "./dom.js";
import {count, cpu, memory} from "./format.js";
import {filterKinds, findKind, loadKinds, openFirstKind, showKinds} from "./kinds.js";
import {revision, showMoment, timeOf} from "./moment.js";
import {closeObject, showObjectOf, tabsOf, unchosen} from "./object.js";
import {Table} from "./table.js";
import {hasUsage, Usage} from "./usage.js";

const table = new Table($("#list"), {
	label: "Objects",
	href: r => changed({inside: r.inside, name: r.name, ...unchosen}),
	sorted: (column, down) => go(changed({sort: column, down: down ? 1 : ""}), true),
});

let received = null; // the list as the stream has sent it
let listened = "", menu = "", chosenKind = null;

const usage = new Usage(() => chosenKind && showList(chosenKind));

export async function enterObjects() {
	const q = query();
	const group = q.get("group") ?? "", resource = q.get("resource") ?? "pods";
	let k = findKind(group, resource);
	const at = revision();
	const wanted = `${group} ${resource} ${q.get("namespace") ?? ""} ${at}`;
	if (menu !== wanted || !k) {
		try {
			await loadKinds();
		} catch (sentence) {
			return say("#objects-failed", sentence);
		}
		k = findKind(group, resource);
		menu = wanted;
		showKinds(k, q.get("namespace") ?? "", at);
		showNamespaces();
	}
	if (!k) {
		hush();
		listened = "";
		return say("#objects-failed", `The control plane serves no ${resource}.`);
	}
	chosenKind = k;
	const form = $("#selection").elements;
	for (const name of filters) {
		if (form[name] !== document.activeElement) form[name].value = q.get(name) ?? "";
	}
	form.namespace.disabled = !k.namespaced;
	$("#objects-title").textContent = k.kind;
	table.grid.setAttribute("aria-label", `${k.kind} objects`);
	$("#view-objects").classList.toggle("with-object", Boolean(q.get("name")));
	$("#kind-menu").open = wideEnough.matches;
	const selection = new URLSearchParams({group: k.group, version: k.version, resource: k.resource,
		namespace: k.namespaced ? q.get("namespace") ?? "" : "", labels: q.get("labels") ?? "",
		fields: q.get("fields") ?? "", at}).toString();
	if (selection !== listened) {
		listened = selection;
		received = null;
		$("#objects-state").textContent = "loading…";
		listen("list", "/objects?" + selection, {
			list: t => {
				say("#objects-failed", "");
				received = t;
				showList(k);
			},
			failed: sentence => say("#objects-failed", sentence),
		}, sentence => say("#objects-failed", sentence));
	} else showList(k);
	if (hasUsage(k) && !at) usage.of(new URLSearchParams(selection));
	else usage.stop();
	showMoment().then(() => {
		if (chosenKind === k && revision() === at && at) showList(k); // the ages are of then
	});
	showCommand($("#list-command"), listCommand(k, q));
	if (q.get("name")) showObjectOf(k, q);
	else closeObject();
}

export function leaveObjects() {
	listened = "";
	chosenKind = null;
	usage.stop();
	closeObject();
}

async function showNamespaces() {
	const select = $("#selection").elements.namespace;
	let names = [];
	try {
		names = await ask("/namespaces?" + new URLSearchParams({at: revision()}));
	} catch {
		// the list says what is wrong
	}
	const now = query().get("namespace") ?? "";
	if (now && !names.includes(now)) names.push(now);
	select.replaceChildren(el("option", {value: ""}, "all namespaces"),
		...names.map(n => el("option", {value: n, selected: n === now}, n)));
	select.value = now;
}

// value returns what rows are sorted by: numbers and times by their size.
function value(row, columns, name) {
	if (name === "Namespace") return row.namespace;
	const i = columns.findIndex(c => c.name === name);
	if (columns[i]?.age) return -Date.parse(row.at);
	if (columns[i]?.usage) return row.used?.[name.toLowerCase()] ?? -1;
	const cell = row.cells[i] ?? "";
	const number = parseFloat(cell);
	return typeof cell === "number" ? cell : /^\d+(\.\d+)?(\/\d+| \(|$)/.test(cell) ? number : cell;
}

function compare(a, b) {
	if (typeof a === "number" && typeof b === "number") return a - b;
	if (typeof a !== typeof b) return typeof a === "number" ? -1 : 1;
	return a.localeCompare(b, "en", {numeric: true});
}

const troubled = ["failing", "pending", "terminating"];

function showList(k) {
	if (!received) return;
	const q = query();
	const text = q.get("text") ?? "", only = q.get("state") ?? "";
	const spaced = k.namespaced && !q.get("namespace");
	const columns = (received.columns ?? []).map(c => ({...c,
		age: c.name === "Age" || c.name === "Last seen"}));
	const nameAt = columns.findIndex(c => c.name === "Name");
	const sort = q.get("sort") ?? "", down = Boolean(q.get("down"));
	let rows = received.rows.filter(r =>
		r.name.includes(text) || (nameAt < 0 && r.cells.some(c => String(c).includes(text))));
	const bad = rows.filter(r => troubled.includes(r.state)).length;
	if (only) rows = rows.filter(r => troubled.includes(r.state));
	const spaceAt = nameAt < 0 ? columns.length - 1 : nameAt + 1;
	rows = rows.map(r => ({...r, inside: r.namespace, key: `${r.namespace}/${r.name}`,
		used: usage.latest.get(`${r.namespace}/${r.name}`),
		cells: spaced ? r.cells.toSpliced(spaceAt, 0, r.namespace) : r.cells}));
	if (spaced) columns.splice(spaceAt, 0, {name: "Namespace"});
	if (usage.latest.size) {
		columns.push({name: "CPU", usage: u => cpu(u.cpu)},
			{name: "Memory", usage: u => memory(u.memory)});
	}
	if (sort) {
		const keyed = rows.map(r => [value(r, columns, sort), r]);
		keyed.sort(([a], [b]) => down ? compare(b, a) : compare(a, b));
		rows = keyed.map(([, r]) => r);
	}
	const more = received.more ? `, and ${received.more} more that are not shown`
		: revision() ? ", as they were" : ", live";
	$("#objects-state").replaceChildren(count(rows.length, "object"), more,
		bad || only ? el("span", {}, " · ",
			el("a", {href: changed({state: only ? "" : "troubled"})}, only ? "show all"
				: k.resource === "events" ? count(bad, "warning") : `${bad} not ready`)) : "");
	$("#objects-empty").hidden = rows.length > 0;
	table.show({columns, rows, sort, down, now: timeOf(revision()),
		chosen: q.get("name") ? `${q.get("inside") ?? ""}/${q.get("name")}` : undefined});
}

const wideEnough = matchMedia("(min-width: 1100px)");

// The keys of k9s, by what they do with an object.
const tabKeys = {y: "", l: "logs", h: "history"};

// key does what a key stands for. It reports whether the key stands for something here.
function key(e) {
	const q = query(), open = Boolean(q.get("name"));
	if (e.key === "Escape" && open) {
		const at = `${q.get("inside") ?? ""}/${q.get("name")}`;
		if (table.rows.some(r => r.key === at)) table.current = at;
		addEventListener("hashchange", () => table.move(0), {once: true}); // the list is there again
		go($("#object-close").hash);
		return true;
	}
	const listed = $("#list").checkVisibility();
	if (e.key === "/" && listed) {
		$("#selection").elements.text.select();
		return true;
	}
	const by = {j: 1, k: -1}[e.key];
	if (by && listed) {
		table.move(table.focused() ? by : 0);
		return true;
	}
	if (!Object.hasOwn(tabKeys, e.key) || !chosenKind) return false;
	const tab = tabKeys[e.key], row = table.focused() ??
		(open ? {inside: q.get("inside") ?? "", name: q.get("name")}
			: table.rows.find(r => r.key === table.current));
	if (!row || tab && !tabsOf(chosenKind, revision()).includes(tab)) return false;
	go(changed({inside: row.inside, name: row.name, ...unchosen, tab}));
	return true;
}

addEventListener("keydown", e => {
	if (!chosenKind || e.defaultPrevented || e.ctrlKey || e.metaKey || e.altKey || $("dialog[open]")) {
		return;
	}
	if (e.target.closest?.("input:not([type=range], [type=checkbox]), textarea, select")) {
		if (e.key === "Escape" && e.target.matches("#selection input")) table.move(0);
		return;
	}
	if (key(e)) e.preventDefault();
});

const filters = ["text", "labels", "fields"];

for (const name of filters) {
	const field = $("#selection").elements[name];
	const filter = later(value => go(changed({[name]: value}), true));
	field.addEventListener("input", () => filter(field.value.trim()));
}
$("#selection").elements.namespace.addEventListener("change", e =>
	go(changed({namespace: e.target.value, name: "", inside: "", tab: "", ...unchosen})));
$("#kind-search").addEventListener("input", filterKinds);
$("#kind-search").addEventListener("keydown", e => {
	if (e.key === "Enter") openFirstKind();
	if (e.key === "ArrowDown") {
		e.preventDefault();
		$$("#kinds li").find(item => !item.hidden && !item.closest("[hidden]"))?.firstChild.focus();
	}
});
$("#kinds").addEventListener("keydown", e => {
	const by = {ArrowDown: 1, ArrowUp: -1}[e.key];
	if (!by) return;
	e.preventDefault();
	const links = $$("#kinds li:not([hidden]) a").filter(a => !a.closest("[hidden]"));
	(links[links.indexOf(document.activeElement) + by] ?? $("#kind-search")).focus();
});
