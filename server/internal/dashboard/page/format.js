// How values are written: durations, ages, paths, and states.

import {el} from "./dom.js";

// time returns a duration, given in nanoseconds.
export function time(nanoseconds) {
	if (nanoseconds < 1e6) return Math.round(nanoseconds / 1e3) + " µs";
	if (nanoseconds < 1e9) return (nanoseconds / 1e6).toFixed(nanoseconds < 1e7 ? 2 : 1) + " ms";
	return (nanoseconds / 1e9).toFixed(2) + " s";
}

// age returns how long ago something was at the time now, as kubectl does.
export function age(date, now = Date.now()) {
	const seconds = Math.max(0, Math.floor((now - Date.parse(date)) / 1000));
	if (!(seconds < 1e10)) return "";
	const units = [[86400, "d"], [3600, "h"], [60, "m"], [1, "s"]];
	const i = Math.max(0, units.findIndex(([size]) => seconds >= 2 * size));
	const [size, unit] = seconds < 2 ? units[3] : units[i];
	const rest = units[i + 1] && seconds < 10 * size
		? Math.floor(seconds % size / units[i + 1][0]) : 0;
	return `${Math.floor(seconds / size)}${unit}${rest ? rest + units[i + 1][1] : ""}`;
}

export const clock = date => new Date(date).toLocaleTimeString([], {hour12: false});

// count returns a number with a noun.
export const count = (n, noun, more = noun + "s") => `${n} ${n === 1 ? noun : more}`;

export const colorOf = code => code >= 500 || code === 0 ? "bad" : code >= 400 ? "fair" : "good";

// codeSign returns a status code with a sign.
export function codeSign(code, text = code) {
	const kind = code >= 500 || code === 0 ? "failing" : code >= 400 ? "refused" : "ready";
	return el("span", {class: "signed " + colorOf(code)}, mark(kind), String(text));
}

const signs = {failing: "!", pending: "…", terminating: "–", ready: "✓", done: "■",
	refused: "×"};

const mark = state => el("i", {class: "sign " + state, "aria-hidden": true}, signs[state]);

// sign returns the sign of a state, with its name for those who do not see it.
export function sign(state) {
	if (!signs[state]) return el("span", {class: "nosign"});
	return el("span", {class: "state", title: state}, mark(state),
		el("span", {class: "unseen"}, state));
}

// signed returns a text with the sign of a state.
export function signed(state, text) {
	const color = {failing: "bad", pending: "fair", terminating: "gone", ready: "good"}[state];
	return el("span", {class: "signed " + (color ?? "")}, mark(state ?? "done"), text);
}

// tallies returns how many objects are in each state.
export function tallies(states) {
	const parts = ["failing", "pending", "terminating", "ready", "done"]
		.filter(s => states?.[s])
		.map(s => el("span", {class: "tally"}, sign(s), ` ${states[s]}`));
	if (states?.[""]) parts.push(el("span", {class: "tally"}, `${states[""]} others`));
	return el("span", {class: "tallies"}, ...parts);
}

// soft returns a name that may break behind its points, dashes and slashes, but not inside of words.
export function soft(name) {
	const parts = String(name).split(/(?<=[./:,=?&-])(?=[^./:,=?&-])/);
	return el("span", {class: "soft"}, ...parts.flatMap((p, i) => i ? [el("wbr"), p] : [p]));
}

// ending is how many characters remain at the end of a name that is cut.
const ending = 8;

// middle returns a name that is cut in its middle if there is no room for it: what tells it from
// others is often at its end.
export function middle(name) {
	const text = String(name);
	if (text.length <= 2 * ending) return el("span", {class: "middle"}, el("span", {}, text));
	return el("span", {class: "middle", title: text}, el("span", {}, text.slice(0, -ending)),
		el("span", {class: "ending"}, text.slice(-ending)));
}

// cpu returns an amount of CPU, given in thousandths, and memory one of memory, given in bytes, as
// kubectl top does.
export const cpu = n => `${n}m`;
export const memory = n => `${Math.round(n / 2 ** 20)}Mi`;

// pathParts returns the beginning of a path, the resource with the name, and the query.
export function pathParts(path) {
	const at = path.indexOf("?");
	const [way, rest] = at < 0 ? [path, ""] : [path.slice(0, at), path.slice(at)];
	const match = way.match(/^(\/apis?\/.*?\/namespaces\/[^/]+)(\/[^/]+.*)$/) ??
		way.match(/^(\/apis\/[^/]+\/[^/]+|\/api\/[^/]+)(\/.+)$/);
	return match ? [match[1], match[2], rest] : ["", way, rest];
}

// path returns a path that is shortened in its middle and in its query, never in its name.
export function path(text) {
	const [head, name, rest] = pathParts(text);
	return el("span", {class: "path", title: text},
		el("span", {class: "head"}, soft(head)), el("span", {class: "name"}, soft(name)),
		rest ? el("span", {class: "rest"}, rest) : null);
}
