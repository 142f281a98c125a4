// The history of an object: its versions, newest first, and a slider that goes through them.

import {changed, el, query} from "./dom.js";
import {clock, count, middle, soft} from "./format.js";
import {difference, View} from "./yaml.js";

// who says who wrote a version.
export function who(v) {
	if (!v.user) return "somebody, before the server started or not by a request";
	const user = v.as ? `${v.user} (impersonated by ${v.as})` : v.user;
	return v.loop ? v.client : `${v.manager || v.client || "an unnamed client"} as ${user}`;
}

// The filters, by their names in the address. That of the specification is none there.
const filters = {
	spec: ["Spec", v => v.spec], people: ["People", v => v.user && !v.loop], all: ["All", () => true],
};

// colored is how many writers have a color of their own.
const colored = 4;

// writers returns the writers of versions with how many each has written, people first. The marks of
// people are taller.
function writers(versions) {
	const counts = new Map();
	for (const v of versions) {
		const name = who(v);
		counts.set(name, {name, loop: v.loop || !v.user, n: (counts.get(name)?.n ?? 0) + 1});
	}
	return [...counts.values()].sort((a, b) => a.loop - b.loop || b.n - a.n)
		.map((w, i) => ({...w, mark: `w${Math.min(i, colored)}${w.loop ? "" : " tall"}`}));
}

// historyOf returns the elements for the history h of an object.
export function historyOf(h) {
	const every = h.versions;
	if (!every.length) return el("p", {class: "empty"}, "No version of it is kept.");
	const wanted = query().get("rev");
	const asked = query().get("versions") ?? "";
	let filter = Object.hasOwn(filters, asked) ? asked : "spec";
	const passing = name => every.filter(filters[name][1]);
	// The version of the address is shown in any case.
	const hidden = wanted && !passing(filter).some(v => String(v.revision) === wanted);
	if (hidden || !passing(filter).length && !asked) filter = "all";
	const shown = passing(filter), last = shown.length - 1;
	const by = new Map(writers(every).map(w => [w.name, w]));
	const pick = el("nav", {class: "pick", "aria-label": "Versions"},
		...Object.entries(filters).map(([name, [title]]) => el("a", {
			href: changed({versions: name === "spec" ? "" : name, rev: ""}), "data-key": `versions ${name}`,
			"aria-current": name === filter ? "true" : null}, `${title} ${passing(name).length}`)));
	if (!shown.length) {
		return el("div", {class: "history"}, pick,
			el("p", {class: "empty"}, "There are no such versions."));
	}
	let at = shown.findIndex(v => String(v.revision) === wanted);
	if (at < 0) at = last;
	const part = el("div", {class: "version"});
	const slider = el("input", {type: "range", min: 0, max: last, value: at, id: "slider",
		"data-key": "slider", "aria-label": "Version, from the oldest to the newest"});
	const marks = el("div", {class: "marks", "aria-hidden": true}, ...shown.map((v, i) => {
		const mark = el("i", {class: by.get(who(v)).mark, title: who(v)});
		mark.style.left = last ? `${100 * i / last}%` : "50%";
		return mark;
	}));
	const legend = el("ul", {class: "writers", "aria-label": "Writers"}, ...writers(shown).map(w =>
		el("li", {}, el("i", {class: by.get(w.name).mark, "aria-hidden": true}), middle(w.name),
			el("span", {class: "quiet"}, ` ${w.n}`))));
	const link = v => changed({rev: v === shown[last] ? "" : v.revision});
	const list = el("ol", {class: "versions", reversed: true, "aria-label": "Versions, newest first"},
		...shown.toReversed().map(v => el("li", {}, el("a", {href: link(v),
			"data-key": `rev ${v.revision}`}, el("span", {class: "number"}, v.revision),
		el("span", {class: "quiet"}, v.time ? clock(v.time) : "–"),
		el("span", {class: v.event}, v.event), middle(who(v))))));
	const show = i => {
		const v = shown[i], before = every[every.indexOf(v) - 1];
		slider.setAttribute("aria-valuetext", `revision ${v.revision}, ${v.event}, by ${who(v)}`);
		[...list.children].forEach((item, n) => last - n === i
			? item.firstChild.setAttribute("aria-current", "true")
			: item.firstChild.removeAttribute("aria-current"));
		[...marks.children].forEach((mark, n) => mark.classList.toggle("now", n === i));
		const text = v.event === "deleted" ? null
			: before?.yaml && before.event !== "deleted" ? difference(before.yaml, v.yaml ?? "") : null;
		part.replaceChildren(
			el("p", {}, el("b", {}, `${i + 1} of ${shown.length}`), `: revision ${v.revision}, `,
				el("span", {class: v.event}, v.event), v.time ? ` at ${clock(v.time)}` : "", ` by ${who(v)}`,
				v.verb ? el("span", {class: "quiet"}, ` (${v.verb})`) : null),
			el("ul", {class: "changes"}, ...(v.changes ?? []).map(c => el("li", {}, soft(c)))),
			text ?? "");
		const full = new View(`revision ${v.revision} as YAML`);
		full.show(v.yaml ?? "");
		part.append(el("details", {}, el("summary", {}, "the whole object at this revision"),
			full.element));
	};
	slider.addEventListener("input", () => show(Number(slider.value)));
	slider.addEventListener("change", () =>
		history.replaceState(null, "", link(shown[Number(slider.value)])));
	show(at);
	const kept = h.compacted || h.more ? `${count(every.length, "version")} still kept` : "";
	return el("div", {class: "history"}, el("div", {class: "picks"}, pick,
		kept ? el("span", {class: "quiet"}, kept) : null),
	el("div", {class: "timeline"}, marks, slider), legend, part, list);
}
