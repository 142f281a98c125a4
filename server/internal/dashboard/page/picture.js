// The picture of the chain: boxes, and lines that branch between them. What passes is computed by
// the server of the page.

import {$, $$, el} from "./dom.js";
import {time} from "./format.js";

const graph = $("#graph"), svg = $("svg", graph), dots = $(".dots", graph);
const maxDots = 60;

// The lines, with the side and the share of the side at which each begins and ends: in a picture
// from left to right, and in a narrow one from top to bottom.
const lines = [
	["clients", "filters", "r.5 l.5", "b.5 t.5"],
	["filters", "aggregator", "r.5 l.5", "b.5 t.5"],
	["aggregator", "extension servers", "r.25 l.5", "b.12 t.5"],
	["aggregator", "core", "r.5 l.5", "b.4 t.5"],
	["core", "extensions", "b.5 t.5", "r.5 l.5"],
	["extensions", "not found", "b.5 t.5", "r.5 l.5"],
	["core", "webhooks", "r.25 l.4", "b.3 t.35"],
	["extensions", "webhooks", "r.25 l.75", "b.3 t.75"],
	["core", "etcd", "r.6 l.25", "b.7 t.25"],
	["extensions", "etcd", "r.6 l.75", "b.7 t.6"],
	["aggregator", "etcd", "b.5 b.5", "r.5 r.5"],
].map(([from, to, wide, narrow]) => ({from, to, wide: wide.split(" "), narrow: narrow.split(" ")}));

const servers = ["clients", "filters", "aggregator", "core", "extensions", "not found"];

export const boxes = $$("button[data-box]", graph);
export const boxOf = name => $(`[data-box="${name}"]`, graph);

// make makes the elements of a line: what the pointer finds, the line, and its head.
function make(l) {
	const add = (tag, parent) => parent.appendChild(
		document.createElementNS("http://www.w3.org/2000/svg", tag));
	l.group = add("g", svg);
	l.path = add("path", l.group);
	l.head = add("path", l.group);
	l.head.classList.add("head");
	l.title = add("title", l.group);
	l.width = 1.5;
}

const outward = {l: [-1, 0], r: [1, 0], t: [0, -1], b: [0, 1]};

// point returns a point at a side of a box, and the direction away from it.
function point(box, at, frame) {
	const r = boxOf(box).getBoundingClientRect(), share = Number(at.slice(1));
	const [dx, dy] = outward[at[0]];
	const x = dx < 0 ? r.left : dx > 0 ? r.right : r.left + share * r.width;
	const y = dy < 0 ? r.top : dy > 0 ? r.bottom : r.top + share * r.height;
	return [x - frame.left, y - frame.top, dx, dy];
}

// draw draws the lines where the boxes are now.
function draw() {
	const frame = graph.getBoundingClientRect();
	if (!frame.width) return;
	svg.setAttribute("viewBox", `0 0 ${frame.width} ${frame.height}`);
	const narrow = getComputedStyle(graph).getPropertyValue("--narrow").trim() === "1";
	for (const l of lines) {
		const [begin, end] = narrow ? l.narrow : l.wide;
		const [x, y, dx, dy] = point(l.from, begin, frame);
		const [tipX, tipY, ex, ey] = point(l.to, end, frame);
		const size = 4 + l.width * .7;
		const [u, v] = [tipX + ex * size, tipY + ey * size]; // where the head begins
		if (begin[0] === end[0]) { // around the boxes between them
			const [w, h] = narrow ? [frame.width - 3, 0] : [0, frame.height - 3];
			l.d = narrow ? `M${x} ${y}H${w - 8}q8 0 8 8V${v - 8}q0 8 -8 8H${u}`
				: `M${x} ${y}V${h - 8}q0 8 8 8H${u - 8}q8 0 8 -8V${v}`;
		} else {
			const reach = Math.max(Math.abs(dx ? u - x : v - y) / 2, 4);
			l.d = `M${x} ${y}C${x + dx * reach} ${y + dy * reach} ${u + ex * reach} ` +
				`${v + ey * reach} ${u} ${v}`;
		}
		l.path.setAttribute("d", l.d);
		l.head.setAttribute("d", `M${tipX} ${tipY}L${u - ey * size * .7} ${v + ex * size * .7}` +
			`L${u + ey * size * .7} ${v - ex * size * .7}Z`);
	}
}

const slow = p95 => p95 > 1e8 ? "bad" : p95 > 1e7 ? "fair" : "good";

const rate = n => n >= 10 ? Math.round(n) : n >= 1 ? n.toFixed(1) : n >= .1 ? n.toFixed(1) : "<0.1";

// showFlow shows what has passed boxes and lines.
export function showFlow(flow) {
	const some = flow.boxes ?? [];
	$("#window").textContent = !some.length ? "No request yet, or none in the last minute."
		: flow.seconds > 10 ? "Idle. All requests of the last minute:"
			: `All requests of the last ${flow.seconds} seconds, also of control loops.`;
	graph.classList.toggle("idle", flow.seconds > 10);
	for (const box of boxes) {
		const p = some.find(p => p.to === box.dataset.box);
		const filter = box.parentElement.matches(".strip");
		$(".rate", box).textContent = !p ? "" : `${rate(p.perSecond)}/s` +
			(filter && p.ended ? `, ${rate(p.ended)} refused` : "");
		$(".late", box).replaceChildren(...p ? [el("span", {}, "p95 "), time(p.p95)] : []);
		$(".late", box).className = `late ${p ? slow(p.p95) : ""}`;
	}
	for (const l of lines) {
		const p = (flow.lines ?? []).find(p => p.from === l.from && p.to === l.to);
		l.width = p ? Math.min(13, 1.5 + 1.6 * Math.log2(1 + p.perSecond)) : 1.5;
		l.group.setAttribute("class", p ? `flows ${slow(p.p95)}` : "");
		l.path.style.strokeWidth = l.width;
		l.title.textContent = `${l.from} → ${l.to}: ` + (p ? `${rate(p.perSecond)}/s, p95 ${time(p.p95)}`
			: "nothing");
	}
	draw();
	if (walk) showWalk(walk);
}

// sendDot lets a dot pass along the lines to where the requests of a group ended.
export function sendDot(group) {
	if (walk || dots.children.length >= maxDots ||
		matchMedia("(prefers-reduced-motion: reduce)").matches) return;
	const way = Math.max(1, servers.indexOf(group.end)); // filters are one box
	const d = lines.filter(l => {
		const at = servers.indexOf(l.to);
		return at > 0 && at <= way;
	}).map(l => l.d).join("");
	if (!d) return;
	const dot = document.createElement("i");
	dot.className = `dot c${group.class}${group.count > 5 ? " many" : ""}`;
	dot.style.offsetPath = `path("${d}")`;
	dots.append(dot);
	dot.animate([{offsetDistance: "0%", opacity: 1}, {offsetDistance: "96%", opacity: 1},
		{offsetDistance: "100%", opacity: 0}],
	{duration: 260 * way, delay: Math.random() * 200, easing: "linear"})
		.finished.then(() => dot.remove(), () => dot.remove());
}

export function choose(name) {
	for (const box of boxes) box.setAttribute("aria-pressed", box.dataset.box === name);
}

let walk = null;

// showWalk draws the way of a request: the boxes that it passes, the lines that it has taken, and
// where it is now. Without a way, it draws what flows again.
export function showWalk(way) {
	walk = way;
	graph.classList.toggle("walking", Boolean(way));
	for (const box of boxes) {
		const {box: name} = box.dataset;
		box.classList.toggle("passed", Boolean(way?.passed.has(name)));
		box.classList.toggle("unreached", Boolean(way) && !way.all.has(name));
		if (way?.now === name) box.setAttribute("aria-current", "step");
		else box.removeAttribute("aria-current");
	}
	for (const l of lines) {
		l.group.classList.toggle("walked", Boolean(way?.lines.has(`${l.from}→${l.to}`)));
	}
}

lines.forEach(make);
new ResizeObserver(draw).observe(graph);
