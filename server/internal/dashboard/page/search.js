// The search across all kinds.

import {$, ask, el, go, hash, later, objectHash, query, say} from "./dom.js";
import {count, sign, soft} from "./format.js";

const input = $("#search-text");
let asked = 0;

export async function enterSearch() {
	const text = query().get("text") ?? "";
	if (document.activeElement !== input) input.value = text;
	const mine = ++asked;
	say("#search-failed", "");
	if (!text) {
		$("#search-state").textContent = "Type a part of a name above.";
		return $("#found").replaceChildren();
	}
	$("#search-state").textContent = "searching…";
	try {
		const answer = await ask("/search?" + new URLSearchParams({text}));
		if (mine !== asked) return;
		$("#search-state").textContent = count(answer.found.length, "object") +
			` with “${text}” in the name` + (answer.more ? `, and ${answer.more} more` : "");
		$("#found").replaceChildren(...answer.found.map(f => el("li", {}, sign(f.state),
			el("a", {href: objectHash(f, f.inside, f.name)}, soft(f.name)),
			el("span", {class: "quiet"}, f.inside ? `${f.kind} in ${f.inside}` : f.kind))));
	} catch (sentence) {
		if (mine === asked) say("#search-failed", String(sentence));
	}
}

const search = later(() => {
	const to = hash("search", {text: input.value.trim()});
	go(to, location.hash.startsWith("#search"));
});
input.addEventListener("input", search);
$("#search").addEventListener("submit", e => {
	e.preventDefault();
	const first = $("#found a");
	if (location.hash === hash("search", {text: input.value.trim()}) && first) first.click();
	else search();
});
addEventListener("keydown", e => {
	if (e.key !== "/" || e.defaultPrevented || e.ctrlKey || e.metaKey || e.altKey ||
		e.target.closest?.("input, textarea, select, dialog[open]")) return;
	e.preventDefault();
	input.select();
});
