// An editor of YAML with line numbers, which shows where something is wrong.

import {button, el} from "./dom.js";
import {count} from "./format.js";

// lineOf returns the number of the line at which a field such as spec.containers[0].image begins,
// or that of the nearest field around it, or 0 if there is none.
export function lineOf(text, field) {
	const wanted = field.replace(/\[([^\]]*)\]/g, ".$1").split(".").filter(Boolean);
	let best = 0, found = 0;
	const open = []; // the fields and items that the line is in
	text.split("\n").forEach((line, i) => {
		let rest = line, depth = 0;
		for (;;) {
			const [space] = rest.match(/^ */);
			depth += space.length;
			rest = rest.slice(space.length);
			const item = /^-( |$)/.test(rest);
			const name = rest.match(/^("[^"]*"|[^\s:#]+):( |$)/)?.[1].replaceAll('"', "");
			if (!item && name === undefined) return;
			// The items of a list may be as deep as the field that they belong to.
			while (open.length && (open.at(-1).depth > depth ||
				open.at(-1).depth === depth && (!item || open.at(-1).item))) open.pop();
			const list = open.at(-1) ?? {items: 0};
			open.push({depth, item, name: item ? String(list.items++) : name, items: 0});
			const path = open.map(each => each.name);
			if (path.length <= wanted.length && path.length > best &&
				path.every((name, n) => name === wanted[n])) [best, found] = [path.length, i + 1];
			if (!item) return;
			depth += 1;
			rest = rest.slice(1);
		}
	});
	return found;
}

export class Editor {
	constructor(label, text) {
		this.numbers = el("pre", {class: "code numbers", "aria-hidden": true});
		this.text = el("textarea", {class: "code", rows: 20, spellcheck: "false", name: "yaml",
			"aria-label": label, wrap: "off"});
		this.text.value = text;
		this.wrong = new Set();
		this.text.addEventListener("input", () => this.count());
		this.text.addEventListener("scroll", () => this.numbers.scrollTop = this.text.scrollTop);
		this.element = el("div", {class: "editor"}, this.numbers, this.text);
		this.count();
	}

	get value() { return this.text.value; }

	count() {
		this.numbers.replaceChildren(...this.text.value.split("\n").map((_, i) =>
			el("span", {class: this.wrong.has(i + 1) ? "line wrong" : "line"}, String(i + 1))));
		this.numbers.scrollTop = this.text.scrollTop;
	}

	// mark marks the lines at which something is wrong, and returns a list of it.
	mark(problems) {
		const at = problems.map(p => p.line ?? lineOf(this.text.value, p.field));
		this.wrong = new Set(at);
		this.count();
		return el("div", {}, el("p", {}, count(problems.length, "problem") + ":"),
			el("ul", {class: "problems"}, ...problems.map((p, i) => el("li", {},
				at[i] ? button(`line ${at[i]}`, () => this.show(at[i])) : null,
				` ${p.field && !p.message.includes(p.field) ? p.field + ": " : ""}${p.message}`))));
	}

	show(line) {
		const lines = this.text.value.split("\n");
		const start = lines.slice(0, line - 1).join("\n").length + (line > 1 ? 1 : 0);
		this.text.focus();
		this.text.setSelectionRange(start, start + lines[line - 1].length);
		this.text.scrollTop = (line - 5) * this.text.scrollHeight / lines.length;
	}
}
