// The commands that show the same as the page.

import {button, el} from "./dom.js";

// word returns a word of a command as a shell needs it.
const word = w => /^[\w./:=@,+-]+$/.test(w) ? w : `'${w.replaceAll("'", `'\\''`)}'`;

const resourceOf = k => k.group ? `${k.resource}.${k.group}` : k.resource;

const inside = namespace => namespace ? ["-n", namespace] : [];

// listCommand returns the command for a list: q is the query of the page.
export function listCommand(k, q) {
	const namespace = q.get("namespace") ?? "";
	const selector = (flag, name) => q.get(name) ? [flag, q.get(name)] : [];
	const where = !k.namespaced ? [] : namespace ? inside(namespace) : ["-A"];
	return [...then(q), "kubectl", "get", resourceOf(k), ...where,
		...selector("-l", "labels"), ...selector("--field-selector", "fields")];
}

// then returns what comes before a command that shows what was at the revision of the address.
const then = q => q.get("at") ? ["kinproc", "at", q.get("at"), "--"] : [];

// objectCommand returns the command for a tab of an object.
export function objectCommand(o, tab, q) {
	const object = `${resourceOf(o.k)}/${o.name}`;
	switch (tab) {
	case "logs":
		return ["kubectl", "logs", o.name, ...inside(o.inside),
			...q.get("container") ? ["-c", q.get("container")] : [],
			q.get("previous") ? "--previous" : q.get("still") ? "--tail=1000" : "-f"];
	case "events":
		return [...then(q), "kubectl", "events", "--for", object, ...inside(o.inside)];
	case "history":
		return ["kinproc", "history", object, ...inside(o.inside)];
	default:
		return [...then(q), "kubectl", "get", object, ...inside(o.inside), "-o", "yaml"];
	}
}

// showCommand shows a command with a button that copies it.
export function showCommand(box, words) {
	const line = words.map(word).join(" ");
	if (box.dataset.line === line) return;
	box.dataset.line = line;
	const code = el("code", {tabindex: 0}, line), said = el("output", {class: "unseen"});
	const copy = button("Copy", async () => {
		try {
			await navigator.clipboard.writeText(line);
			said.textContent = copy.textContent = "Copied";
		} catch { // the browser does not let the page copy
			getSelection().selectAllChildren(code);
			said.textContent = copy.textContent = "Selected";
		}
		setTimeout(() => copy.textContent = "Copy", 2000);
	}, {"aria-label": "Copy the command"});
	box.replaceChildren(code, copy, said);
}
