// The menu of kinds, by group, with a search box.

import {$, $$, ask, el, objectHash} from "./dom.js";
import {middle} from "./format.js";

let kinds = null, counts = new Map();

export const keyOf = k => `${k.resource}.${k.group}`;

// loadKinds returns the kinds that the control plane serves now.
export async function loadKinds() {
	kinds = await ask("/kinds");
	return kinds;
}

// findKind returns a kind that was loaded by its group and resource.
export const findKind = (group, resource) =>
	kinds?.find(k => k.group === group && k.resource === resource);

// showKinds fills the menu. Kinds with objects say how many.
// Those of a revision do not.
export async function showKinds(chosen, namespace, at) {
	const groups = new Map();
	for (const k of kinds) groups.set(k.group, [...(groups.get(k.group) ?? []), k]);
	const menu = $("#kinds");
	menu.replaceChildren(...[...groups].map(([group, list]) => el("section", {},
		el("h2", {}, group || "core"),
		el("ul", {}, ...list.map(k => el("li", {"data-words":
			[k.kind, k.resource, k.group, ...k.short ?? []].join(" ").toLowerCase()},
		el("a", {href: objectHash(k, "", "", {namespace: k.namespaced ? namespace : "", at}),
			"aria-current": k === chosen ? "page" : null, "data-kind": keyOf(k)},
		middle(k.kind), el("span", {class: "number"}, at ? "" : counts.get(keyOf(k)) ?? ""))))))));
	$("#kind-now").textContent = chosen?.kind ?? "Kinds";
	filterKinds();
	const current = $("[aria-current]", menu);
	if (current && !menu.contains(document.activeElement)) {
		menu.scrollTop = Math.max(0, current.offsetTop - menu.clientHeight / 2);
	}
	if (at) return;
	try {
		counts = new Map((await ask("/counts")).map(c => [keyOf(c), c.count]));
	} catch {
		return; // the list says what is wrong
	}
	for (const a of $$("a", menu)) $(".number", a).textContent = counts.get(a.dataset.kind) ?? "";
}

export function filterKinds() {
	const text = $("#kind-search").value.trim().toLowerCase();
	for (const section of $$("#kinds section")) {
		let any = false;
		for (const item of $$("li", section)) {
			item.hidden = !item.dataset.words.includes(text);
			any ||= !item.hidden;
		}
		section.hidden = !any;
	}
}

// openFirstKind opens the first kind that the search box leaves.
export function openFirstKind() {
	const first = $$("#kinds li").find(item => !item.hidden && !item.closest("[hidden]"));
	if (first && $("#kind-search").value.trim()) $("a", first).click();
}
