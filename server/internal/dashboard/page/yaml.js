// An object as YAML, that folds and copies, and two versions of one side by side.

import {common} from "./compare.js";
import {$, button, el} from "./dom.js";

// shownLines bounds how many lines of an object are shown.
const shownLines = 5000;

const depth = line => line.search(/\S|$/) + (/^\s*- /.test(line) ? 1 : 0);

// endOf returns the number behind the last line of the block that a line begins.
function endOf(lines, at) {
	let end = at + 1;
	while (end < lines.length && (lines[end].trim() === "" || depth(lines[end]) > depth(lines[at]))) {
		end++;
	}
	return end;
}

function colored(line) {
	const match = line.match(/^(\s*(?:- )*)([^\s"'][^:]*|"[^"]*")(:)(\s.*|)$/);
	if (!match) return [line];
	return [match[1], el("span", {class: "key"}, match[2]), match[3],
		el("span", {class: "value"}, match[4])];
}

// View is a view of a text that stays folded while the text changes.
export class View {
	constructor(label) {
		this.folded = new Set();
		this.text = "";
		this.lines = el("div", {class: "code yaml", tabindex: 0, role: "region", "aria-label": label});
		this.said = el("output", {});
		this.element = el("div", {class: "yamlbox"}, el("div", {class: "tools"},
			button("Copy", () => this.copy()),
			button("Fold all", () => this.all(true)), button("Unfold all", () => this.all(false)),
			this.said), this.lines);
	}

	show(text) {
		if (text === this.text) return;
		const old = this.text;
		this.text = text;
		const lines = text.trimEnd().split("\n");
		const kept = old ? common(old.trimEnd().split("\n"), lines).now : null;
		this.list = lines.slice(0, shownLines);
		const path = [], items = new Map();
		this.paths = this.list.map(line => {
			while (path.length && path.at(-1)[0] >= depth(line)) path.pop();
			let name = line.trim().split(":")[0];
			if (name.startsWith("- ")) { // its number tells it from the others in the list
				const list = path.map(([, name]) => name).join(".");
				items.set(list, (items.get(list) ?? -1) + 1);
				name = `${items.get(list)}`;
			}
			path.push([depth(line), name]);
			return path.map(([, name]) => name).join(".");
		});
		this.changedLines = new Set(kept ? [...lines.keys()].filter(i => !kept.has(i)) : []);
		if (lines.length > shownLines) this.list.push(`# … ${lines.length - shownLines} more lines`);
		this.draw();
	}

	draw() {
		const rows = [];
		for (let i = 0; i < this.list.length; i++) {
			const end = endOf(this.list, i), folds = end > i + 1;
			const folded = folds && this.folded.has(this.paths[i]);
			const fold = folds ? button(folded ? "▸" : "▾", () => this.toggle(this.paths[i]), {
				class: "fold", "data-path": this.paths[i], "aria-expanded": !folded,
				"aria-label": `${folded ? "unfold" : "fold"} ${this.paths[i]}`,
			}) : null;
			rows.push(el("div", {class: this.changedLines.has(i) ? "line fresh" : "line"}, fold,
				...colored(this.list[i]), folded ? el("span", {class: "folded"},
					` … ${end - i - 1} lines`) : null));
			if (folded) i = end - 1;
		}
		this.lines.replaceChildren(...rows);
	}

	toggle(path) {
		if (!this.folded.delete(path)) this.folded.add(path);
		this.draw();
		$(`[data-path="${CSS.escape(path)}"]`, this.lines)?.focus();
	}

	all(folded) {
		this.folded = new Set(folded ? this.paths : []);
		this.draw();
	}

	async copy() {
		try {
			await navigator.clipboard.writeText(this.text);
			this.said.textContent = "copied";
		} catch {
			getSelection().selectAllChildren(this.lines);
			this.said.textContent = "selected, as the browser does not let the page copy";
		}
		setTimeout(() => this.said.textContent = "", 3000);
	}
}

// sides shows a text before and after, with the lines that differ marked.
export function sides(before, after, names = ["before", "after"]) {
	const [old, now] = [before.split("\n"), after.split("\n")];
	const same = before ? common(old, now) : null;
	const column = (title, lines, kept, mark) => {
		const text = el("pre", {class: "code", tabindex: 0, role: "region", "aria-label": title});
		lines.slice(0, shownLines).forEach((line, i) => {
			const differs = same && !kept.has(i);
			text.append(el("span", {class: differs ? `line ${mark}` : "line"},
				differs ? `${mark === "add" ? "+" : "−"} ${line}` : same ? `  ${line}` : line));
		});
		if (lines.length > shownLines) {
			text.append(el("span", {class: "line"}, `… ${lines.length - shownLines} more lines`));
		}
		return el("div", {}, el("h4", {}, title), text);
	};
	return el("div", {class: "sides"},
		before ? column(names[0], old, same.old, "del") : null,
		column(before ? names[1] : "the object", now, same?.now, "add"));
}

// around is how many lines are shown around a change.
const around = 3;

// The version is another one after each change.
const withoutVersion = text => text.trimEnd().replace(/^  resourceVersion: .*\n/m, "").split("\n");

// difference shows only what differs, in one column. It returns null if nothing does.
export function difference(before, after) {
	const [old, now] = [withoutVersion(before), withoutVersion(after)];
	const same = common(old, now);
	const lines = [];
	for (let i = 0, j = 0; i < old.length || j < now.length;) {
		if (i < old.length && !same.old.has(i)) lines.push(["del", "−", old[i++]]);
		else if (j < now.length && !same.now.has(j)) lines.push(["add", "+", now[j++]]);
		else {
			lines.push(["", " ", old[i++] ?? ""]);
			j++;
		}
	}
	if (!lines.some(([mark]) => mark)) return null;
	const near = lines.map((_, n) =>
		lines.slice(Math.max(0, n - around), n + around + 1).some(([mark]) => mark));
	const text = el("pre", {class: "code diff", tabindex: 0, role: "region",
		"aria-label": "what differs"});
	lines.forEach(([mark, sign, line], n) => {
		if (near[n]) text.append(el("span", {class: `line ${mark}`}, `${sign} ${line}`));
		else if (near[n - 1]) text.append(el("span", {class: "line skip"}, "⋯"));
	});
	return text;
}
