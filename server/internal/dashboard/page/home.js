// Home: what is wrong now, and what has changed in the last minute.

import {who} from "./object.js";
import {$, ask, el, hash, objectHash, say} from "./dom.js";
import {age, count, sign, signed, soft, tallies} from "./format.js";

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
			href: objectHash(t)}, el("b", {}, t.kind), tallies(t.states));
	}));
	update("#wrong", h.problems.length ? h.problems.map(p => el("li", {class: p.state},
		sign(p.state), el("div", {}, el("span", {class: "quiet"}, p.kind + " "),
			el("a", {href: objectHash(p, p.inside, p.name)},
				soft(p.inside ? `${p.inside}/${p.name}` : p.name)),
			el("p", {class: "message"}, p.why)))) :
		[el("li", {class: "fine"}, signed("ready", "Nothing is wrong: all is ready."))]);
	$("#wrong-title").textContent = h.problems.length
		? `Wrong now: ${count(h.problems.length + h.more, "object")}` : "Wrong now";
	update("#warnings", h.warnings.rows?.length ? h.warnings.rows.map(r => el("li", {},
		el("p", {}, signed("failing", r.cells[2]), el("span", {class: "quiet"}, ` ${r.cells[3]}` +
			`, ${age(r.at)} ago` + (r.cells[5] > 1 ? `, ${r.cells[5]} times` : ""))),
		el("p", {class: "message"}, r.cells[4]))) :
		[el("li", {class: "empty"}, "There are no warnings.")]);
	showChanges(h.changes);
}

// together puts versions of one object by one writer that follow each other into one entry.
function together(changes) {
	const list = [];
	for (const v of changes) {
		const same = list.find(e => e.resource === v.resource && e.namespace === v.namespace &&
			e.name === v.name && who(e) === who(v) && e.event === v.event);
		if (same) same.times++;
		else list.push({...v, times: 1});
	}
	return list;
}

// dull matches changes that say less than others of the same version.
const dull = /Time\b|generation|Generation|GracePeriod|annotations|uid|conditions/;

function showChanges(changes) {
	const list = together(changes);
	update("#changed", list.length ? list.slice(0, 60).map(v => {
		const [resource, ...group] = v.resource.split(".");
		const change = v.changes?.find(c => !dull.test(c)) ?? v.changes?.[0] ?? "";
		return el("li", {}, el("span", {class: "ago number"}, age(v.time)),
			el("div", {}, el("span", {class: v.event}, v.event), v.times > 1 ? ` ${v.times}×` : "", " ",
				el("span", {class: "quiet"}, resource + " "),
				el("a", {href: hash("objects", {group: group.join("."), resource, inside: v.namespace,
					name: v.name, tab: "history"})}, soft(v.namespace ? `${v.namespace}/${v.name}` : v.name)),
				el("span", {class: "quiet"}, ` by ${who(v)}`),
				change ? el("p", {class: "message mono"}, soft(change)) : null));
	}) : [el("li", {class: "empty"}, "Nothing but leases and events.")]);
	$("#changed-more").hidden = list.length <= 60;
}
