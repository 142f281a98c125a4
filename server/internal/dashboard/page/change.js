// What changes an object: an edit that is checked first, scale, restart, and delete. Every request
// goes through the form's handler on the server, which refuses it if the dashboard is read-only.

import {$, ask, button, el, say, writes} from "./dom.js";
import {Editor} from "./editor.js";
import {count} from "./format.js";
import {difference} from "./yaml.js";

const pathOf = o => (o.k.group ? `/apis/${o.k.group}` : "/api") + `/${o.k.version}` +
	(o.inside ? `/namespaces/${o.inside}` : "") + `/${o.k.resource}/${o.name}`;

const attempt = (method, path, body) => ask("/try", {method, path, body: typeof body === "string"
	? body : body ? JSON.stringify(body) : "", as: "", groups: []});

const refusal = a => a.message || `The control plane answered ${a.code}.`;

// send sends a request. It throws the sentence of a refusal, also one of the control plane.
async function send(method, path, body) {
	const a = await attempt(method, path, body);
	if (a.code >= 400) throw refusal(a);
	return a;
}

// actions returns the buttons for what can be done with an object. now returns it as it is.
export function actions(o, now) {
	const can = verb => o.k.verbs?.includes(verb);
	if (!writes) {
		return [el("p", {class: "empty"}, "Read-only: ", el("code", {}, "--dashboard-writes"),
			" allows to edit and to delete it.")];
	}
	const list = [];
	if (can("update") && o.k.resource !== "secrets") {
		list.push(button("Edit", () => edit(o, now), {"data-key": "edit"}));
	}
	if (can("scale")) list.push(button("Scale", () => scale(o, now), {"data-key": "scale"}));
	const restarts = ["deployments", "statefulsets", "daemonsets"].includes(o.k.resource);
	if (restarts && o.k.group === "apps") {
		list.push(button("Restart", () => restart(o), {"data-key": "restart"}));
	}
	if (can("delete")) {
		list.push(button("Delete", () => remove(o), {class: "danger", "data-key": "delete"}));
	}
	return list;
}

// open opens the dialog with what is done. It returns the sentence at its end.
function open(title, ...content) {
	const dialog = $("#change"), opener = document.activeElement;
	const problem = el("div", {class: "problem", role: "alert", hidden: true});
	$("#change-title").textContent = title;
	$("#change-body").replaceChildren(...content, problem);
	dialog.onclose = () => opener?.isConnected && opener.focus();
	dialog.showModal();
	$("textarea, input, select, button", $("#change-body"))?.focus();
	return problem;
}

// doing disables a button while something is done, closes the dialog at the end, or says what is
// wrong.
async function doing(e, problem, f) {
	e.target.disabled = true;
	say(problem, "");
	try {
		await f();
		$("#change").close();
	} catch (sentence) {
		say(problem, String(sentence));
	} finally {
		e.target.disabled = false;
	}
}

// withoutStatus returns an object without its status, and the status. An edit does not change it.
function withoutStatus(yaml) {
	const [status = ""] = yaml.match(/^status:.*\n(?:[ -].*\n|\n)*/m) ?? [];
	return [yaml.replace(status, ""), status];
}

// problemsOf returns everything that is wrong with an object, as a list. For unknown fields, the
// server refuses it before it looks at the values of the others, so it is asked again without them.
async function problemsOf(path, body, strict) {
	const unknown = [...(strict.message ?? "").matchAll(/(?:unknown|duplicate) field "([^"]+)"/g)]
		.map(([message, field]) => ({field, message}));
	const rest = unknown.length ? await attempt("PUT", `${path}?dryRun=All`, body) : strict;
	if (rest.code < 400) return unknown;
	return [...unknown, ...rest.causes ?? [{field: "", message: refusal(rest)}]];
}

function edit(o, now) {
	const original = now().yaml;
	const [shown, status] = withoutStatus(original);
	const editor = new Editor("The object as YAML", shown.trimEnd());
	const path = pathOf(o);
	const body = () => editor.value.trimEnd() + "\n" + status;
	const result = el("div", {"aria-live": "polite"});
	let checked = null;
	const save = button("Save", e => doing(e, problem, () => send("PUT",
		path + "?fieldValidation=Strict", checked)), {class: "main", disabled: true});
	const check = button("Check", async e => {
		e.target.disabled = true;
		say(problem, "");
		editor.mark([]);
		result.replaceChildren();
		try {
			const value = body();
			const a = await attempt("PUT", path + "?dryRun=All&fieldValidation=Strict", value);
			if (a.code >= 400) {
				const all = await problemsOf(path, value, a);
				problem.replaceChildren(editor.mark(all));
				problem.hidden = false;
				return;
			}
			const differs = difference(original, a.body);
			result.replaceChildren(el("h3", {}, differs ? "What the server would change"
				: "The server would change nothing"), differs ?? "");
			checked = value;
			save.disabled = !differs || body() !== value;
		} catch (sentence) {
			const [, line] = /\bline (\d+)/.exec(sentence) ?? []; // that is not YAML
			problem.replaceChildren(editor.mark([{field: "", message: String(sentence),
				line: Number(line ?? 0)}]));
			problem.hidden = false;
		} finally {
			e.target.disabled = false;
		}
	});
	editor.element.addEventListener("input", () => save.disabled = true);
	const problem = open(`Edit ${o.name}`, editor.element, el("div", {class: "bar"}, check, save,
		el("span", {class: "empty"}, "Check sends it to the server, which validates it and keeps " +
			"nothing. Save sends the same again. The status is left as it is.")), result);
}

function scale(o, now) {
	const [, replicas] = now().yaml.match(/^spec:\n(?:  .*\n)*?  replicas: (\d+)$/m) ?? [];
	const input = el("input", {type: "number", min: 0, max: 10000, name: "replicas",
		value: replicas ?? 1});
	const problem = open(`Scale ${o.name}`, el("label", {}, "Replicas", input),
		el("div", {class: "bar"}, button("Scale", e => doing(e, problem, () => send("PATCH",
			pathOf(o) + "/scale", {spec: {replicas: Number(input.value)}})), {class: "main"})));
	input.addEventListener("keydown", e => e.key === "Enter" &&
		$("#change-body button.main").click());
	input.select();
}

function restart(o) {
	const problem = open(`Restart ${o.name}`,
		el("p", {}, "Its pods are replaced one after the other, as kubectl rollout restart does."),
		el("div", {class: "bar"}, button("Restart", e => doing(e, problem, () => send("PATCH",
			pathOf(o), {spec: {template: {metadata: {annotations: {
				"kubectl.kubernetes.io/restartedAt": new Date().toISOString()}}}}})), {class: "main"})));
}

const propagations = {
	Background: "then what it owns, in the background",
	Foreground: "after what it owns",
	Orphan: "and leave what it owns",
};

async function remove(o) {
	const choice = el("select", {name: "propagation"}, ...Object.entries(propagations)
		.map(([name, what]) => el("option", {value: name}, `${name}: ${what}`)));
	const owns = el("p", {class: "empty"}, "…");
	const problem = open(`Delete ${o.name}?`, owns, el("label", {}, "Propagation", choice),
		el("div", {class: "bar"}, button("Delete", e => doing(e, problem, () => send("DELETE",
			pathOf(o), {apiVersion: "v1", kind: "DeleteOptions", propagationPolicy: choice.value})),
		{class: "danger"})));
	try {
		const t = await ask("/tree?" + new URLSearchParams({group: o.k.group, version: o.k.version,
			resource: o.k.resource, inside: o.inside, name: o.name}));
		const find = b => b.here ? b : b.owned?.map(find).find(Boolean);
		const size = b => (b.owned ?? []).reduce((n, child) => n + 1 + size(child), 0);
		const n = size(find(t.root) ?? {});
		owns.textContent = n ? `It owns ${count(n, "object")}.` : "It owns nothing.";
	} catch {
		owns.textContent = "";
	}
}

$("#change-close").addEventListener("click", () => $("#change").close());
