// One request: its steps, nested, with the time of each, and two requests side by side.

import {common} from "./compare.js";
import {latest} from "./chain.js";
import {$, ask, button, changed, el, go, hash} from "./dom.js";
import {clock, codeSign, colorOf, count, path, soft, time} from "./format.js";
import {sides} from "./yaml.js";

let opened = "";

export function closeRequest() {
	opened = "";
	if ($("#request").open) $("#request").close();
}

// openRequest opens a request of the chain, beside another one if it is given.
export async function openRequest(id, other) {
	const key = `${id} ${other ?? ""}`;
	if (key === opened) return;
	opened = key;
	const dialog = $("#request"), body = $("#request-body"), opener = document.activeElement;
	let content, rest = null;
	try {
		const [a, b] = await Promise.all([ask("/live/" + id), other ? ask("/live/" + other) : null]);
		$("#request-title").replaceChildren(b ? "Two requests" : el("span", {}, a.method, " ",
			path(a.path)));
		content = b ? compared(a, b) : [...showAnswered(a), el("p", {}, el("a", {href:
			hash("chain", {tab: "walk", of: id})}, "Walk it along the chain"))];
		rest = b ? null : related(a);
	} catch (sentence) {
		$("#request-title").textContent = `Request ${id}`;
		content = [el("p", {class: "problem"}, String(sentence))];
	}
	if (opened !== key) return;
	body.replaceChildren(...content);
	rest?.then(e => opened === key && body.append(e), sentence =>
		opened === key && body.append(el("p", {class: "problem"}, String(sentence))));
	if (dialog.open) return;
	dialog.onclose = () => {
		if (opened) go(changed({request: "", with: ""}));
		opened = "";
		if (opener?.isConnected && opener !== document.body) opener.focus();
		else $(`#requests tr[data-id="${CSS.escape(id)}"] a`)?.focus();
	};
	dialog.showModal();
}

// tree returns the steps as a tree, by their levels.
function tree(a) {
	const root = {...a.outside, children: []}, open = [root];
	for (const step of a.steps) {
		const node = {step, itself: step.itself, gaps: step.gaps, children: []};
		open.length = step.level + 1;
		open.at(-1).children.push(node);
		open.push(node);
	}
	return root;
}

// outside is what a server does outside of steps: filters and the response before and after.
const outside = {
	at: "other filters and the response",
	decision: "auditing, deadlines, reading the request and writing the response",
};

// way is what is outside of a request that the dashboard has sent itself.
const way = {
	at: "the way there and back",
	decision: "the dashboard's client, the connection, other filters and the response",
};

// showAnswered returns the elements for a request with its steps.
export function showAnswered(a) {
	const outcome = el("p", {class: "outcome"}, codeSign(a.code),
		` ${a.bytes} bytes in ${time(a.took)}` + (a.user ? `, as ${a.user}` : "") +
		(a.client ? ` with ${a.client}` : "") + (a.received ? `, at ${clock(a.received)}` : ""));
	if (!a.steps?.length) {
		return [outcome, el("p", {class: "empty"},
			"There is no trace: the user may not see it, or the server is not kinproc.")];
	}
	const total = Math.max(a.took, ...a.steps.map(s => s.start + s.took));
	const root = tree(a);
	const list = el("ol", {class: "steps", "aria-label": "Steps of the request"});
	let before = "";
	const add = (node, level) => {
		// What a step did besides the steps inside of it has a row of its own, unless it is little.
		const rest = node.children.length > 0 && node.itself > total / 50;
		list.append(stepRow(node, total, level, before, rest));
		if (node.step.object) before = node.step.object;
		for (const child of node.children) add(child, level + 1);
		if (rest) list.append(unnamed(`rest of ${node.step.at}`, besides[node.step.at] ??
			"what it did besides these steps", node, total, level + 1));
	};
	root.children.forEach(node => add(node, 0));
	const {at, decision} = a.received ? outside : way;
	list.append(unnamed(at, decision, root, total, 0));
	list.append(el("li", {class: "sum"}, el("b", {}, "sum"),
		el("span", {class: "why"}, "of the time of each step itself"), el("span", {class: "track"}),
		el("span", {class: "time"}, time(total)),
		el("span", {class: "time self", "data-sum": sumOf(root)}, time(sumOf(root)))));
	return [outcome, axis(total), list];
}

// visible returns a text with its control characters written out. The key from which etcd continues
// a list ends with NUL.
const visible = text => text.replace(/[\0-\x1f\x7f]/g, c =>
	c === "\0" ? "\\0" : "\\x" + c.charCodeAt(0).toString(16).padStart(2, "0"));

// said returns what a step decided, and why.
export const said = step => visible(step.decision + (step.reason ? ` (${step.reason})` : ""));

// besides is what the servers do beside their steps.
const besides = {
	aggregator: "looking for the APIService, and whatever else it does around the next server",
	core: "routing, plugins that had nothing to say, copies and conversions, locks",
	extensions: "routing, schemas, plugins that had nothing to say, copies and conversions",
};

// bar returns a part of the axis.
function bar(from, to, total) {
	const filled = el("span", {class: "filled"});
	filled.style.left = 100 * from / total + "%";
	filled.style.width = Math.max(100 * (to - from) / total, .4) + "%";
	return filled;
}

// unnamed returns the row of what a step did itself, between the steps inside of it.
function unnamed(at, decision, node, total, level) {
	const bars = node.gaps.filter(([from, to]) => to - from > total / 500)
		.map(([from, to]) => bar(from, to, total));
	const row = el("li", {class: "unnamed"}, el("b", {}, at), el("span", {class: "why"}, decision),
		el("span", {class: "track", "aria-hidden": true}, ...bars), el("span", {class: "time"}),
		el("span", {class: "time self"}, time(node.itself)));
	row.style.setProperty("--level", level);
	return row;
}

const sumOf = node => node.itself + node.children.reduce((n, child) => n + sumOf(child), 0);

// axisMarks returns the times along the bars.
function axisMarks(total) {
	const marks = [0, .25, .5, .75, 1].map(share => {
		const mark = el("span", {}, time(total * share));
		mark.style.left = 100 * share + "%";
		return mark;
	});
	return el("div", {class: "marks"}, ...marks);
}

// axis returns the scale of the bars.
function axis(total) {
	return el("div", {class: "axis", "aria-hidden": true}, el("b", {}, "step"),
		el("span", {class: "why"}, "decision"), axisMarks(total),
		el("span", {class: "time"}, "took"), el("span", {class: "time self"}, "itself"));
}

function stepRow(node, total, level, before, rest) {
	const {step} = node;
	const row = el("li", {"data-at": step.at},
		el("b", {}, step.at),
		el("span", {class: "why"}, soft(said(step))),
		el("span", {class: "track", "aria-hidden": true},
			bar(step.start, step.start + step.took, total)),
		el("span", {class: "time"}, time(step.took)),
		el("span", {class: "time self"}, rest ? "" : time(node.itself)),
		change(step, before));
	row.style.setProperty("--level", level);
	return row;
}

// change returns what a step changed: its patch, and the object before and after it.
export function change(step, before) {
	if (!step.patch && (!step.object || step.object === before)) return null;
	const what = el("details", {class: "change"},
		el("summary", {}, step.patch ? "what it changed" : "the object"));
	if (step.patch) {
		what.append(el("pre", {class: "code", tabindex: 0, role: "region", "aria-label": "patch"},
			step.patch.map(p => JSON.stringify(p)).join("\n")));
	}
	if (step.object) what.append(sides(before, step.object));
	return what;
}

// related returns the burst that a request belongs to, on one axis of time, and the choice of one
// to compare with.
async function related(a) {
	const burst = await ask(`/live/${a.id}/related`);
	const total = Math.max(...burst.map(r => r.after + r.took));
	const rows = burst.map(r => {
		const part = bar(r.after, r.after + r.took, total);
		part.classList.add(colorOf(r.code));
		return el("tr", {class: r.id === a.id ? "here" : null, "data-near": r.near},
			el("td", {class: "number wide"}, "+" + time(r.after)),
			el("td", {}, r.method),
			el("td", {class: "pathcell"}, r.id === a.id ? path(r.path)
				: el("a", {href: changed({request: r.id, with: ""})}, path(r.path))),
			el("td", {class: "steps", "aria-hidden": true}, el("span", {class: "track"}, part)),
			el("td", {}, codeSign(r.code)), el("td", {class: "number"}, time(r.took)),
			el("td", {}, r.id === a.id ? "this one"
				: el("a", {href: changed({request: a.id, with: r.id})}, "compare")));
	});
	const near = burst.filter(r => r.near).length;
	const only = el("input", {type: "checkbox", name: "near", onchange: () => rows.forEach(row =>
		row.hidden = only.checked && row.dataset.near === "false")});
	const others = latest().filter(r => r.id !== String(a.id));
	const choice = el("select", {name: "with"}, el("option", {value: ""}, "choose a request"),
		...others.map(r => el("option", {value: r.id}, r.text)));
	choice.addEventListener("change", () => go(changed({request: a.id, with: choice.value})));
	return el("div", {class: "related"},
		el("h3", {}, "The burst"),
		el("p", {class: "empty"}, `${count(burst.length, "request")} of ${a.client || "this client"} ` +
			`in ${time(total)}, without a pause of a second: of a control loop, that is a reconcile, or ` +
			"several at once."),
		near < burst.length ? el("label", {class: "check"}, only,
			`only the ${near} for the same object, or one named after it`) : null,
		el("table", {class: "plain fixed"}, el("thead", {}, el("tr", {}, ...[["After", "number wide"],
			["Method"], ["Path"], ["", "when"], ["Code"], ["Took", "number"], [""]].map(([h, c]) =>
			h ? el("th", {scope: "col", class: c}, h)
				: el("td", {class: c}, ...c ? [axisMarks(total)] : [])))), el("tbody", {}, ...rows)),
		el("label", {class: "compare"}, "Compare with", choice));
}

// compared returns two requests side by side: the steps in the order of both.
function compared(a, b) {
	const label = s => s.at + (["mutating admission", "validating admission", "webhook"]
		.includes(s.at) ? ` ${s.reason ?? ""}` : "");
	const [one, two] = [a.steps.map(label), b.steps.map(label)];
	const same = common(one, two);
	const rows = [];
	const row = (name, x, y, decisions) => rows.push(el("tr", {class: x == null ? "add"
		: y == null ? "del" : null}, el("th", {scope: "row"}, name),
	el("td", {class: "number"}, x == null ? "–" : time(x)),
	el("td", {class: "number"}, y == null ? "–" : time(y)),
	el("td", {class: "number"}, x == null || y == null ? "" :
		(y >= x ? "+" : "−") + time(Math.abs(y - x))),
	el("td", {class: "quiet wide"}, soft(decisions))));
	for (let i = 0, j = 0; i < one.length || j < two.length;) {
		const [s, t] = [a.steps[i], b.steps[j]];
		if (s && !same.old.has(i)) {
			row(s.at, s.itself, null, said(s));
			i++;
		} else if (t && !same.now.has(j)) {
			row(t.at, null, t.itself, said(t));
			j++;
		} else {
			const [one, other] = [said(s), said(t)];
			row(s.at, s.itself, t.itself, one === other ? one : `${one} → ${other}`);
			i++;
			j++;
		}
	}
	row(outside.at, a.outside.itself, b.outside.itself, "");
	row("sum", a.took, b.took, "");
	const head = (r, name) => el("p", {}, el("b", {}, name), " ", el("a", {href:
		changed({request: r.id, with: ""})}, r.method, " ", r.path), " ", codeSign(r.code),
	el("span", {class: "quiet"}, ` as ${r.user}` + (r.client ? ` with ${r.client}` : "")));
	return [head(a, "A"), head(b, "B"),
		el("div", {class: "bar"}, button("Swap", () => go(changed({request: b.id, with: a.id})))),
		el("table", {class: "plain two"}, el("thead", {}, el("tr", {},
			el("th", {scope: "col"}, "Step"), el("th", {scope: "col", class: "number"}, "A itself"),
			el("th", {scope: "col", class: "number"}, "B itself"),
			el("th", {scope: "col", class: "number"}, "B − A"),
			el("th", {scope: "col", class: "wide"}, "Decision"))), el("tbody", {}, ...rows))];
}

$("#close").addEventListener("click", () => $("#request").close());
