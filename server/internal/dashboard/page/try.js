// A request that somebody tries.

import {$, ask, el, go, hash, query, say} from "./dom.js";
import {showAnswered} from "./request.js";
import {View} from "./yaml.js";

const form = $("#attempt").elements;
const kept = ["method", "path", "as", "groups", "body"];

export function enterTry() {
	const q = query();
	for (const name of kept) {
		if (q.has(name) && document.activeElement !== form[name]) form[name].value = q.get(name);
	}
}

async function send(event) {
	event.preventDefault();
	const values = Object.fromEntries(kept.map(name => [name, form[name].value]));
	go(hash("try", values), true); // without an entry in the browser's history for each attempt
	say("#try-failed", "");
	$("#answer").replaceChildren(el("p", {class: "empty"}, "sending…"));
	try {
		const a = await ask("/try", {method: values.method, path: values.path.trim(),
			body: values.body, as: values.as.trim(),
			groups: values.groups.split(",").map(g => g.trim()).filter(Boolean)});
		const view = new View("Body of the answer");
		view.show(a.body ?? "");
		$("#answer").replaceChildren(el("h3", {}, "The answer"), ...showAnswered(a), view.element);
	} catch (sentence) {
		$("#answer").replaceChildren();
		say("#try-failed", String(sentence));
	}
}

$("#attempt").addEventListener("submit", send);
