// Home: what is wrong now, and what has changed in the last minute.

import {who} from "./history.js";
import {$, ask, el, hash, objectHash, say} from "./dom.js";
import {age, count, middle, sign, signed, soft, tallies} from "./format.js";

let timer = 0, entered = 0;

export function leaveHome() {
	clearTimeout(timer);
	entered++;
}

// enterHome asks again and again, but less often if the answer takes long.
export async function enterHome() {
	leaveHome();
	const mine = entered, began = performance.now();
	try {
		const h = await ask("/home");
		if (mine !== entered) return;
		show(h);
		say("#home-failed", (h.failed ?? []).join(" "));
	} catch (sentence) {
		if (mine === entered) say("#home-failed", String(sentence));
	}
	if (mine === entered) {
		timer = setTimeout(enterHome, Math.max(2000, 5 * (performance.now() - began)));
	}
}

// update replaces the children of an element, unless they are the same or the focus is in them.
function update(selector, children) {
	const box = $(selector), fresh = el("div");
	fresh.append(...children);
	if (fresh.innerHTML === box.innerHTML) return;
	const focused = box.contains(document.activeElement) && document.activeElement.hash;
	box.replaceChildren(...fresh.childNodes);
	if (focused) $(`a[href="${CSS.escape(focused)}"]`, box)?.focus();
}

function show(h) {
	update("#healthy", h.healthy.map(t => {
		const bad = (t.states.failing ?? 0) + (t.states.pending ?? 0) + (t.states.terminating ?? 0);
		return el("a", {class: "tile" + (t.states.failing ? " failing" : bad ? " pending" : ""),
			href: objectHash(t)}, el("b", {}, middle(t.kind)), tallies(t.states));
	}));
	update("#wrong", h.causes.length ? Object.entries(headings).flatMap(([state, heading]) => {
		const causes = h.causes.filter(c => c.state === state);
		return causes.length ? [el("h4", {}, heading), el("ul", {class: "list"}, ...causes.map(cause))]
			: [];
	}) : [el("p", {}, signed("ready", "Nothing is wrong: all is ready."))]);
	$("#wrong-title").textContent = "Wrong now" + (h.causes.length
		? `: ${count(h.causes.length + h.more, "cause")}, ${count(h.wrong, "object")}` : "");
	update("#warnings", h.warnings.rows?.length ? h.warnings.rows.map(r => el("li", {},
		el("p", {}, signed("failing", r.cells[2]), el("span", {class: "quiet"}, ` ${r.cells[3]}` +
			`, ${age(r.at)} ago` + (r.cells[5] > 1 ? `, ${r.cells[5]} times` : ""))),
		el("p", {class: "message"}, r.cells[4]))) :
		[el("li", {class: "empty"}, "There are no warnings.")]);
	showChanges(h.changes);
}

const headings = {failing: "Failing", pending: "Not ready yet", terminating: "Being deleted"};

// cause tells all that is wrong with an object and with what belongs to it.
function cause(c) {
	return el("li", {class: c.state}, el("p", {class: "root"}, sign(c.state),
		el("span", {class: "quiet"}, c.kind), link(c),
		c.parts ? el("span", {class: "quiet"}, `${c.parts} ready`) : null),
	...c.reasons.flatMap(r => {
		const why = r.what ? `${r.what}: ${r.why}` : r.why === `${c.parts} ready` ? "" : r.why;
		return [why ? el("p", {class: "why"}, soft(why)) : null,
			r.message ? el("p", {class: "message", title: r.message}, r.message) : null,
			r.what ? el("p", {class: "whose"}, ...r.objects.map(o => link(o, false)),
				r.count > r.objects.length ? el("a", {href: objectHash(c, c.inside, c.name, {tab: "tree"})},
					`${r.count - r.objects.length} more`) : null) : null];
	}));
}

const link = (o, inside = o.inside) => el("a", {href: objectHash(o, o.inside, o.name)},
	soft(inside ? `${inside}/${o.name}` : o.name));

function showChanges(changes) {
	update("#changed", changes.length ? changes.map(c => {
		const [resource, ...group] = c.resource.split(".");
		const more = c.objects - c.names.length;
		return el("li", {}, el("span", {class: "ago number"}, age(c.time)),
			el("div", {}, el("span", {class: c.event}, c.event), c.times > 1 ? ` ${c.times}×` : "", " ",
				el("span", {class: "quiet"}, resource + " "),
				...c.names.flatMap((name, i) => [i ? ", " : "", el("a", {href: hash("objects", {
					group: group.join("."), resource, inside: c.namespace, name, tab: "history"})},
				soft(c.namespace && !i ? `${c.namespace}/${name}` : name))]),
				el("span", {class: "quiet"}, (more ? ` and ${more} more` : "") + ` by ${who(c)}`),
				c.says ? el("p", {class: "message mono"}, soft(c.says)) : null));
	}) : [el("li", {class: "empty"}, "Nothing but leases, events and what quotas count.")]);
}
