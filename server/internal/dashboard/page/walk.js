// The guided walk: one create, or a request that has passed, step by step along the chain.

import {$, ask, changed, el, go, hash, query, say} from "./dom.js";
import {explain} from "./explained.js";
import {path, time} from "./format.js";
import {showWalk} from "./picture.js";
import {change, said, showAnswered} from "./request.js";

const filters = ["authentication", "flow control", "authorization"];
const servers = ["aggregator", "core", "extensions", "not found"];
let walked = null, stop = 0;

export async function enterWalk() {
	const of = query().get("of") ?? "", entered = location.hash;
	$("#walk-about").hidden = of !== "";
	if (String(walked?.id ?? "") !== of) {
		walked = null;
		say("#walk-failed", "");
		if (of) await load(of);
		if (location.hash !== entered) return; // meanwhile, something else was chosen
	}
	const wanted = Number(query().get("step") ?? 1) - 1;
	stop = Math.min(Math.max(wanted || 0, 0), Math.max(0, (walked?.steps?.length ?? 1) - 1));
	showStop();
}

async function load(id) {
	try {
		walked = await ask("/live/" + id);
	} catch (sentence) {
		say("#walk-failed", String(sentence));
	}
}

async function start() {
	say("#walk-failed", "");
	$("#walk-start").disabled = true;
	try {
		walked = await ask("/walk", {});
	} catch (sentence) {
		return say("#walk-failed", String(sentence));
	} finally {
		$("#walk-start").disabled = false;
	}
	stop = 0;
	go(hash("chain", {tab: "walk"}), true);
	showStop();
}

// boxAt returns the box at which a step of a request takes place, and the line to it.
function boxAt(steps, i) {
	const name = steps[i].at;
	const passed = steps.slice(0, i + 1).map(s => s.at);
	const server = servers.findLast(s => passed.includes(s)) ?? "filters";
	if (filters.includes(name)) return [name, "clients→filters"];
	if (name === "etcd") return ["etcd", `${server}→etcd`];
	if (name === "webhook") return ["webhooks", `${server}→webhooks`];
	if (steps.some(s => s.at === "aggregator" && s.decision.startsWith("proxied")) &&
		["connection", "TLS", "response"].includes(name)) {
		return ["extension servers", "aggregator→extension servers"];
	}
	if (!servers.includes(name)) return [server === "filters" ? "clients" : server, ""];
	return [name, `${["filters", ...servers][servers.indexOf(name)]}→${name}`];
}

// showChain draws the way up to a step along the chain.
function showChain(steps, at) {
	const stops = steps.map((_, i) => boxAt(steps, i)), until = stops.slice(0, at + 1);
	showWalk(!steps.length ? null : {
		all: new Set(["clients", ...stops.map(([box]) => box)]),
		passed: new Set(["clients", ...until.map(([box]) => box)]),
		lines: new Set(until.map(([, line]) => line)), now: stops[at]?.[0],
	});
	$("#walk-chain").replaceChildren(...steps.map((step, i) => el("li", {},
		el("a", {href: changed({step: i + 1}), "aria-current": i === at ? "step" : null}, step.at))));
}

// stepAt goes to the next step that takes place at a box, if there is one.
export function stepAt(box) {
	const at = (walked?.steps ?? []).map((_, i) => i)
		.filter(i => boxAt(walked.steps, i)[0] === box);
	if (at.length) go(changed({step: 1 + (at.find(i => i > stop) ?? at[0])}));
}

function showStop() {
	const steps = walked?.steps ?? [];
	$("#walk-start").textContent = walked?.id ? "Walk a create" : walked ? "Create another one"
		: "Create it";
	$("#walk-back").hidden = $("#walk-next").hidden = !steps.length;
	if (!steps.length) {
		showChain([], -1);
		$("#walk-at").textContent = "";
		$("#walk-steps").replaceChildren(...walked ? showAnswered(walked) : []);
		return;
	}
	const step = steps[stop];
	$("#walk-back").disabled = stop === 0;
	$("#walk-next").disabled = stop === steps.length - 1;
	$("#walk-at").textContent = `step ${stop + 1} of ${steps.length}`;
	showChain(steps, stop);
	const before = steps.slice(0, stop).findLast(s => s.object)?.object ?? "";
	const stopped = change(step, before);
	if (stopped) stopped.open = true;
	const all = showAnswered(walked);
	const list = all[2];
	[...list.querySelectorAll("[data-at]")].forEach((row, i) => {
		row.classList.toggle("now", i === stop);
		if (i === stop) row.setAttribute("aria-current", "step");
		$(".change", row)?.remove();
	});
	const [text, where] = explain(step.at);
	$("#walk-steps").replaceChildren(walked.id ? el("p", {}, walked.method, " ", path(walked.path)) : "",
		el("div", {class: "stop"}, el("h3", {}, step.at), text, el("p", {class: "empty"},
			`${said(step)}, in ${time(step.took)}`), where,
		stopped), el("details", {}, el("summary", {}, "The whole way"), ...all), left());
}

// left says what is left of the object.
function left() {
	if (!walked.created) return "";
	if (walked.left) {
		return el("p", {class: "problem"}, `default/${walked.created} is still there: ${walked.left}`);
	}
	return el("p", {class: "empty"}, "The pod is deleted again. What is left is ",
		el("a", {href: hash("objects", {resource: "pods", inside: "default", name: walked.created,
			tab: "history"})}, "its history"), ".");
}

const move = by => walked?.steps && go(changed({step: stop + 1 + by}));

$("#walk-start").addEventListener("click", start);
$("#walk-back").addEventListener("click", () => move(-1));
$("#walk-next").addEventListener("click", () => move(1));
