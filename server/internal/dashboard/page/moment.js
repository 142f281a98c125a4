// The moment at which objects are looked at: now, or one of those before at which something was
// written and that etcd still keeps. The address has its revision.

import {$, ask, changed, el, go, later, query} from "./dom.js";
import {clock, count} from "./format.js";

// fresh is for how long the moments are not asked for again, in milliseconds.
const fresh = 5000;

const slider = $("#moment-slider"), said = $("#moment-at");

let moments = []; // the oldest first
let asked = -fresh; // when, by the clock of the page

// revision returns the revision of the address, or an empty text for now.
export const revision = () => query().get("at") ?? "";

// indexOf returns which moment a revision belongs to, or -1 if that is not known.
const indexOf = at => moments.findIndex((m, i) => m.revision >= Number(at) &&
	(i || m.revision === Number(at)));

// timeOf returns the time of a revision in milliseconds, or undefined if it is not known.
export function timeOf(at) {
	const m = at && moments[indexOf(at)];
	return m ? Date.parse(m.time) : undefined;
}

// showMoment loads the moments if they are not fresh, and shows that of the address.
export async function showMoment() {
	if (performance.now() - asked > fresh) {
		asked = performance.now();
		try {
			moments = await ask("/moments");
		} catch {
			moments = []; // the user may not see them, or the control plane is another one
		}
	}
	draw();
}

function draw() {
	const at = revision(), last = moments.length;
	$("#moment").hidden = !last && !at;
	$("#view-objects").classList.toggle("then", Boolean(at));
	$("#moment-now").hidden = !at;
	$("#moment-now").href = changed({at: ""});
	slider.max = last;
	slider.disabled = !last;
	$("#moment-marks").replaceChildren(...moments.flatMap((m, i) => {
		if (!m.people.length) return [];
		const mark = el("i", {class: "w0 tall", title: `${clock(m.time)} ${m.people.join(", ")}`});
		mark.style.left = `${100 * i / last}%`;
		return [mark];
	}));
	if (pending) return;
	const i = at ? indexOf(at) : last;
	slider.value = Math.max(i, 0);
	tell(i, at);
}

// tell says which moment the slider is at.
function tell(i, at) {
	const m = moments[i];
	let text = moments.length ? `now; ${count(moments.length, "moment")} since ${clock(moments[0].time)}`
		: "now";
	if (at && !m) text = `revision ${at}`;
	else if (at) {
		const by = m.people.length ? ` by ${m.people.join(", ")}` : "";
		text = `${clock(m.time)}, revision ${at}, ${count(m.writes, "write")}${by}`;
	}
	said.textContent = text;
	slider.setAttribute("aria-valuetext", text);
}

let pending = false; // whether the slider has moved and the address has not

const arrive = later(at => {
	pending = false;
	go(changed({at}), true);
});

slider.addEventListener("input", () => {
	const i = Number(slider.value), at = moments[i]?.revision ?? "";
	pending = true;
	tell(i, at);
	arrive(at);
});
// Whoever takes the slider wants the latest moments too.
slider.addEventListener("focus", () => showMoment());
