// A table of up to ten thousand rows. Only those that can be seen are elements. Columns get the width
// that they need; if the room does not suffice, the less important ones are left out, and of those
// that remain the longest are cut in their middle.

import {el} from "./dom.js";
import {age, middle, sign} from "./format.js";

const rowHeight = 31, twoLines = 54, overscan = 15, gap = 16;
const shortest = 64, longest = 460, sampled = 300;

// The columns that stay longest, the most important one first.
const important = ["name", "reason", "status", "ready", "last seen", "object", "message", "age",
	"cpu", "memory", "namespace", "type", "available"];

// The widths up to which columns shrink before one is left out, and those on a telephone, where a
// name, a status and what is ready have room.
const least = {name: 190, message: 380}, leastOfOthers = 150;
const telephone = 400, leastThere = {name: 118, ready: 52}, leastOfOthersThere = 92;

const rank = name => {
	const at = important.indexOf(name.toLowerCase());
	return at < 0 ? important.length : at;
};

const context = document.createElement("canvas").getContext("2d");

function widthOf(text) {
	return context.measureText(text).width;
}

export class Table {
	// box is the element that scrolls. Options: label, href(row), and sorted(column, down), which is
	// called when the user wants another order.
	constructor(box, options) {
		this.options = options;
		this.box = box;
		this.rows = [];
		this.columns = [];
		this.current = "";
		box.classList.add("table");
		this.head = el("div", {class: "tr head", role: "row"});
		this.body = el("div", {class: "body", role: "rowgroup"});
		this.grid = el("div", {role: "table", "aria-label": options.label},
			el("div", {role: "rowgroup", class: "headgroup"}, this.head), this.body);
		box.replaceChildren(this.grid);
		box.addEventListener("scroll", () => this.draw());
		box.addEventListener("keydown", e => this.key(e));
		new ResizeObserver(() => this.layout()).observe(box);
		setInterval(() => this.box.isConnected && !document.hidden && this.ages(), 5000);
	}

	// show shows rows. Each has cells, state, at, and a key; chosen is the key of the chosen one.
	// Ages are those at the time now, if it is given.
	show({columns, rows, sort, down, chosen, now}) {
		Object.assign(this, {columns, rows, sort, down, chosen, now});
		if (!rows.some(r => r.key === this.current)) this.current = chosen ?? rows[0]?.key ?? "";
		this.grid.setAttribute("aria-rowcount", rows.length + 1);
		this.natural = columns.map((c, i) => this.widest(c, i));
		this.layout();
	}

	widest(column, i) {
		context.font = getComputedStyle(this.body).font;
		let width = widthOf(column.name) + 18;
		const step = Math.max(1, Math.floor(this.rows.length / sampled));
		for (let r = 0; r < this.rows.length; r += step) {
			width = Math.max(width, widthOf(this.text(this.rows[r], column, i)));
		}
		return Math.min(Math.max(width + 4, shortest), longest);
	}

	text(row, column, i) {
		if (column.age) return age(row.at, this.now);
		if (column.usage) return row.used ? column.usage(row.used) : "";
		const cell = row.cells[i];
		return cell == null ? "" : String(cell);
	}

	// layout chooses the columns and their widths.
	layout() {
		const room = this.box.clientWidth - 26 - gap;
		if (room <= 0 || !this.natural) return;
		const narrow = room < 560;
		let shown = this.columns.map((c, i) => i).filter(i => !this.columns[i].wide);
		this.second = narrow ? this.columns.findIndex(c => c.name === "Message") : -1;
		shown = shown.filter(i => i !== this.second);
		const sum = list => list.reduce((n, i) => n + this.natural[i] + gap, 0);
		for (const i of this.columns.keys()) {
			if (this.columns[i].wide && sum([...shown, i]) <= room) {
				shown = [...shown, i].sort((a, b) => a - b);
			}
		}
		const leastOf = i => Math.min(this.natural[i], room < telephone
			? leastThere[this.columns[i].name.toLowerCase()] ?? leastOfOthersThere
			: least[this.columns[i].name.toLowerCase()] ?? leastOfOthers);
		const needed = list => list.reduce((n, i) => n + leastOf(i) + gap, 0);
		while (shown.length > 1 && needed(shown) > room) {
			const worst = shown.reduce((a, b) =>
				rank(this.columns[b].name) >= rank(this.columns[a].name) ? b : a);
			shown = shown.filter(i => i !== worst);
		}
		const widths = new Map(shown.map(i => [i, leastOf(i)]));
		let left = room - needed(shown);
		const wanting = () => shown.filter(i => widths.get(i) < this.natural[i]);
		while (left > 1 && wanting().length) {
			const share = left / wanting().length;
			for (const i of wanting()) {
				const more = Math.min(share, this.natural[i] - widths.get(i));
				widths.set(i, widths.get(i) + more);
				left -= more;
			}
		}
		if (left > 0 && shown.length) {
			const message = shown.find(i => this.columns[i].name === "Message");
			for (const i of message === undefined ? shown : [message]) {
				widths.set(i, widths.get(i) + left / (message === undefined ? shown.length : 1));
			}
		}
		this.shown = shown;
		this.template = "26px " + shown.map(i => `${Math.floor(widths.get(i))}px`).join(" ");
		this.height = this.second >= 0 ? twoLines : rowHeight;
		this.header();
		this.drawn = null;
		this.draw();
	}

	header() {
		const cells = this.shown.map(i => {
			const name = this.columns[i].name;
			const now = this.sort === name;
			return el("div", {role: "columnheader", "aria-sort":
				now ? this.down ? "descending" : "ascending" : null},
			el("button", {type: "button", class: "sort", title: `sort by ${name}`, onclick: () =>
				this.options.sorted(name, now ? !this.down : false)},
			name, el("span", {"aria-hidden": true}, now ? this.down ? " ▾" : " ▴" : "")));
		});
		this.head.style.gridTemplateColumns = this.template;
		this.head.replaceChildren(el("div", {role: "columnheader"},
			el("span", {class: "unseen"}, "State")), ...cells);
	}

	// draw makes the rows that can be seen.
	draw() {
		if (!this.template) return;
		const top = Math.floor(this.box.scrollTop / this.height);
		const bottom = Math.min(this.rows.length,
			top + Math.ceil(this.box.clientHeight / this.height));
		if (this.drawn && top >= this.drawn.first && bottom <= this.drawn.last) return;
		const first = Math.max(0, top - overscan);
		const last = Math.min(this.rows.length, bottom + overscan);
		this.drawn = {first, last};
		const focused = this.body.contains(document.activeElement);
		this.body.style.height = this.rows.length * this.height + "px";
		this.body.replaceChildren(...this.rows.slice(first, last).map((r, i) =>
			this.row(r, first + i)));
		if (focused) this.focus();
	}

	row(r, n) {
		const cells = this.shown.map(i => {
			const text = this.text(r, this.columns[i], i);
			const link = i === this.shown[0];
			return el("div", {role: "cell", title: text, "data-age": this.columns[i].age ? r.at : null},
				link ? el("a", {href: this.options.href(r), "data-key": r.key,
					tabindex: r.key === this.current ? 0 : -1,
					"aria-current": r.key === this.chosen ? "true" : null}, middle(text))
					: this.columns[i].name === "Message" || this.columns[i].age ? text : middle(text));
		});
		if (this.second >= 0) {
			const text = this.text(r, this.columns[this.second], this.second);
			cells.push(el("div", {role: "cell", class: "second", title: text}, text));
		}
		const row = el("div", {class: `tr row ${r.state ?? ""}`, role: "row", "aria-rowindex": n + 2,
			"data-chosen": r.key === this.chosen, onclick: e => {
				if (e.target.tagName !== "A") row.querySelector("a").click();
			}}, el("div", {role: "cell"}, sign(r.state)), ...cells);
		row.style.gridTemplateColumns = this.template;
		row.style.top = n * this.height + "px";
		row.style.height = this.height + "px";
		return row;
	}

	ages() {
		for (const cell of this.body.querySelectorAll("[data-age]")) {
			const leaf = cell.firstElementChild ?? cell;
			leaf.textContent = age(cell.dataset.age, this.now);
		}
	}

	// key moves through the rows. Only one of them is in the order of the tab key.
	key(e) {
		const page = Math.max(1, Math.floor(this.box.clientHeight / this.height) - 2);
		const by = {ArrowDown: 1, ArrowUp: -1, PageDown: page, PageUp: -page,
			Home: -this.rows.length, End: this.rows.length}[e.key];
		if (by === undefined || !this.body.contains(e.target)) return;
		e.preventDefault();
		this.move(by);
	}

	// move goes to the row that is so many rows further down.
	move(by) {
		if (!this.rows.length) return;
		const at = this.rows.findIndex(r => r.key === this.current) + by;
		const to = Math.min(Math.max(at, 0), this.rows.length - 1);
		this.current = this.rows[to].key;
		const top = to * this.height, room = this.box.clientHeight - this.head.offsetHeight;
		if (top < this.box.scrollTop) this.box.scrollTop = top;
		else if (top + this.height > this.box.scrollTop + room) {
			this.box.scrollTop = top + this.height - room;
		}
		this.drawn = null;
		this.draw();
		this.focus();
	}

	// focused returns the row that has the focus.
	focused() {
		const key = this.body.contains(document.activeElement) && document.activeElement.dataset.key;
		return this.rows.find(r => r.key === key);
	}

	focus() {
		this.body.querySelector(`a[data-key="${CSS.escape(this.current)}"]`)
			?.focus({preventScroll: true});
	}
}

// fill fills a small table: head has the names of columns, of which those that end with ? are left
// out on narrow screens.
export function fill(table, head, rows, empty) {
	const wide = head.map(h => h.endsWith("?") ? "wide" : null);
	table.replaceChildren(
		el("thead", {}, el("tr", {}, ...head.map((h, i) =>
			el("th", {scope: "col", class: wide[i]}, h.replace("?", ""))))),
		el("tbody", {}, ...(rows.length ? rows.map(cells => el("tr", {}, ...cells.map((c, i) =>
			el("td", {class: wide[i]}, c ?? "")))) :
			[el("tr", {}, el("td", {colspan: head.length, class: "empty"}, empty))])));
}
