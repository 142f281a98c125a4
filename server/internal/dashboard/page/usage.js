// What pods and nodes use, from the API metrics.k8s.io: asked for again and again while they are
// shown, and kept for a while.

import {ask, el} from "./dom.js";
import {cpu, memory} from "./format.js";

// every is the time between two questions, in milliseconds, and unserved the one if nobody answers.
const every = 3000, unserved = 30_000;
// samplesKept bounds the samples of an object.
const samplesKept = 100;

const svg = (tag, attributes) => {
	const e = document.createElementNS("http://www.w3.org/2000/svg", tag);
	for (const [name, value] of Object.entries(attributes)) e.setAttribute(name, value);
	return e;
};

export const hasUsage = k => k.group === "" && ["pods", "nodes"].includes(k.resource);

// Usage asks for what a list or an object uses, and calls back with it.
export class Usage {
	constructor(answered) {
		this.answered = answered;
		this.stop();
	}

	// of asks with these parameters from now on.
	of(parameters) {
		const asked = parameters.toString();
		if (asked === this.asked) return;
		this.stop();
		this.asked = asked;
		this.again();
	}

	stop() {
		clearTimeout(this.timer);
		this.asked = "";
		this.latest = new Map();
		this.samples = [];
	}

	async again() {
		const mine = this.asked, began = performance.now();
		let answer = {served: false, list: []};
		try {
			answer = await ask("/usage?" + mine);
		} catch {
			// the list says what is wrong
		}
		if (mine !== this.asked) return;
		this.latest = new Map(answer.list.map(u => [`${u.inside}/${u.name}`, u]));
		if (answer.list.length === 1) {
			this.samples = [...this.samples, answer.list[0]].slice(-samplesKept);
		}
		this.answered(this);
		this.timer = setTimeout(() => this.again(),
			Math.max(answer.served ? every : unserved, 5 * (performance.now() - began)));
	}
}

// sparks shows what an object uses, and how that has changed.
export function sparks(samples) {
	const last = samples.at(-1);
	if (!last) return [];
	const figure = (name, text, values) => el("span", {class: "spark"}, el("span", {class: "quiet"}, name),
		` ${text} `, spark(values));
	return [figure("CPU", cpu(last.cpu), samples.map(s => s.cpu)),
		figure("Memory", memory(last.memory), samples.map(s => s.memory))];
}

// spark draws values as a line, from zero to the largest one.
function spark(values) {
	const width = 96, height = 18, most = Math.max(...values, 1);
	if (values.length === 1) values = [values[0], values[0]];
	const points = values.map((v, i) => [i * width / (values.length - 1),
		height - 1.5 - v / most * (height - 3)].map(n => n.toFixed(1)).join());
	const line = svg("svg", {viewBox: `0 0 ${width} ${height}`, width, height, "aria-hidden": true});
	line.append(svg("polyline", {points: points.join(" ")}));
	return line;
}
