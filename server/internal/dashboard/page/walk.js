// The guided walk: one create, step by step, beside the chain.

import {$, ask, changed, el, go, hash, query, say} from "./dom.js";
import {time} from "./format.js";
import {explained, source} from "./explained.js";
import {change, showAnswered} from "./request.js";

const links = ["authentication", "flow control", "authorization", "aggregator", "core",
	"extensions", "not found"];
let walked = null, stop = 0;

export function enterWalk() {
	if (!walked) return showChain([], -1);
	const wanted = Number(query().get("step") ?? 1) - 1;
	stop = Math.min(Math.max(wanted || 0, 0), Math.max(0, (walked.steps?.length ?? 1) - 1));
	showStop();
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
	history.replaceState(null, "", hash("walk"));
	showStop();
}

// showChain shows the places that the request passes, with the steps in the server that answers.
function showChain(steps, at) {
	const passed = steps.map(s => s.at);
	const answered = links.findLast(l => passed.includes(l));
	const inner = el("ol", {});
	steps.forEach((step, i) => {
		if (links.includes(step.at)) return;
		const previous = inner.lastElementChild;
		if (previous?.dataset.at === step.at) {
			if (i === at) previous.setAttribute("aria-current", "step");
			return;
		}
		inner.append(el("li", {"data-at": step.at, "aria-current": i === at ? "step" : null},
			el("a", {href: changed({step: i + 1})}, step.at)));
	});
	$("#walk-chain").replaceChildren(...links.map(link => {
		const i = passed.indexOf(link);
		return el("li", {class: i < 0 ? "unreached" : null, "data-at": link,
			"aria-current": at >= 0 && passed[at] === link ? "step" : null},
		i < 0 ? el("span", {}, link) : el("a", {href: changed({step: i + 1})}, link),
		link === answered && inner.children.length ? inner : null);
	}));
}

function showStop() {
	const steps = walked.steps ?? [];
	if (!steps.length) {
		$("#walk-steps").replaceChildren(...showAnswered(walked));
		return;
	}
	const step = steps[stop];
	$("#walk-start").textContent = "Create another one";
	$("#walk-back").hidden = $("#walk-next").hidden = false;
	$("#walk-back").disabled = stop === 0;
	$("#walk-next").disabled = stop === steps.length - 1;
	$("#walk-at").textContent = `step ${stop + 1} of ${steps.length}`;
	showChain(steps, stop);
	const before = steps.slice(0, stop).findLast(s => s.object)?.object ?? "";
	const stopped = change(step, before);
	if (stopped) stopped.open = true;
	const [text, file, tour] = explained[step.at] ?? ["", "chain/chain.go", "docs/tour/README.md"];
	const all = showAnswered(walked);
	const list = all[2];
	[...list.querySelectorAll("[data-at]")].forEach((row, i) => {
		row.classList.toggle("now", i === stop);
		if (i === stop) row.setAttribute("aria-current", "step");
		$(".change", row)?.remove();
	});
	$("#walk-steps").replaceChildren(el("div", {class: "stop"}, el("h3", {}, step.at),
		el("p", {}, text), el("p", {class: "empty"},
			`${step.decision}${step.reason ? ` (${step.reason})` : ""}, in ${time(step.took)}`),
		el("p", {class: "where"}, "The code: ", outer(file), " · The tour: ", outer(tour)),
		stopped), el("details", {}, el("summary", {}, "The whole way"), ...all), left());
}

const outer = file => el("a", {href: source + file, target: "_blank", rel: "noopener noreferrer"},
	file);

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
