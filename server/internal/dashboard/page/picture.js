// The picture of the chain, with dots for the requests that pass through it.

import {$, $$} from "./dom.js";

export const places = $$("#links [data-place]").map(e => e.dataset.place);
const maxDots = 60;

const box = place => $(`#links [data-place="${place}"]`);

// sendDot lets a dot pass through the picture to where the requests of a group ended.
export function sendDot(group) {
	const dots = $(".dots");
	if (dots.children.length >= maxDots || matchMedia("(prefers-reduced-motion: reduce)").matches) {
		return;
	}
	const frame = dots.getBoundingClientRect();
	const vertical = frame.width < 800;
	const way = places.slice(0, places.indexOf(group.end) + 1).map(place => {
		const at = box(place).getBoundingClientRect();
		return vertical ? [frame.width - 16, at.top - frame.top + at.height / 2]
			: [at.left - frame.left + at.width / 2, at.bottom - frame.top + 13];
	});
	const dot = document.createElement("i");
	dot.className = `dot c${group.class}${group.count > 5 ? " many" : ""}`;
	dots.append(dot);
	const frames = way.map(([x, y]) => ({transform: `translate(${x}px, ${y}px)`, opacity: 1}));
	frames.push({...frames.at(-1), opacity: 0});
	dot.animate(frames, {duration: 130 * way.length, delay: Math.random() * 200, easing: "linear"})
		.finished.then(() => dot.remove(), () => dot.remove());
}

// showLinks shows how many requests pass each place, where some have ended, and which one is chosen.
export function showLinks(passedBy, endedAt, chosen) {
	for (const place of places) {
		const rate = passedBy.get(place) ?? 0;
		$(".rate", box(place)).textContent = rate ? `${Math.ceil(rate)}/s` : "";
		box(place).classList.toggle("ended", endedAt.has(place));
		$("button", box(place))?.setAttribute("aria-pressed", place === chosen);
	}
}
