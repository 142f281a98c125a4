// What all screens are made of: elements, requests to the dashboard, and its streams.

export const $ = (selector, inside = document) => inside.querySelector(selector);
export const $$ = (selector, inside = document) => [...inside.querySelectorAll(selector)];

// writes says whether the dashboard may change something.
export const writes = document.body.dataset.writes === "true";

// el makes an element. Children that are not nodes become text, never HTML.
export function el(tag, attributes = {}, ...children) {
	const e = document.createElement(tag);
	for (const [name, value] of Object.entries(attributes)) {
		if (name.startsWith("on")) e.addEventListener(name.slice(2), value);
		else if (typeof value === "boolean" && name.startsWith("aria-")) e.setAttribute(name, value);
		else if (value === true) e.setAttribute(name, "");
		else if (value !== false && value != null) e.setAttribute(name, value);
	}
	e.append(...children.filter(c => c != null));
	return e;
}

export const button = (text, onclick, more = {}) =>
	el("button", {type: "button", onclick, ...more}, text);

// say shows a sentence, or hides its element if there is none.
export function say(selector, sentence) {
	const e = typeof selector === "string" ? $(selector) : selector;
	e.textContent = sentence;
	e.hidden = !sentence;
}

// ask returns what the dashboard answers. It throws the sentence of a refusal.
export async function ask(path, body) {
	const options = body === undefined ? {} : {
		method: "POST", body: JSON.stringify(body),
		headers: {"Content-Type": "application/json", "Kinproc-Dashboard": "1"},
	};
	let response;
	try {
		response = await fetch(path, options);
	} catch {
		throw "The dashboard does not answer. Is the control plane still running?";
	}
	if (!response.ok) throw (await response.text()).trim();
	return response.json();
}

// The streams of the view, by their purpose. They end when the view is left or the page is hidden.
const sources = new Map();

// listen opens a stream, in place of another one for the same purpose.
export function listen(purpose, path, handlers, lost) {
	hush(purpose);
	const source = new EventSource(path);
	sources.set(purpose, source);
	for (const [event, handle] of Object.entries(handlers)) {
		source.addEventListener(event, e => handle(JSON.parse(e.data)));
	}
	source.onerror = () => lost("The connection to the dashboard is lost. Is it still running?");
	source.onopen = () => lost("");
}

// hush closes a stream, or all.
export function hush(purpose) {
	for (const [name, source] of sources) {
		if (purpose !== undefined && purpose !== name) continue;
		source.close();
		sources.delete(name);
	}
}

// later returns a function that calls f once no more calls come.
export function later(f) {
	let timer;
	return (...args) => {
		clearTimeout(timer);
		timer = setTimeout(() => f(...args), 300);
	};
}

// query returns the part of the address that belongs to the view.
export const query = () => new URLSearchParams(location.hash.split("?")[1] ?? "");

// hash returns the address of a view. Empty parameters are left out.
export function hash(view, parameters = {}) {
	const q = new URLSearchParams();
	for (const [name, value] of Object.entries(parameters)) {
		if (value !== "" && value != null && value !== false) q.set(name, value);
	}
	return `#${view}${q.size ? "?" + q : ""}`;
}

// changed returns the address of this view with some parameters changed.
export function changed(parameters) {
	const view = location.hash.slice(1).split("?")[0];
	return hash(view, {...Object.fromEntries(query()), ...parameters});
}

// go goes to an address. Typing in a filter replaces it, so that one step back leads further.
export function go(to, replace = false) {
	if (to === location.hash) return;
	if (!replace) {
		location.hash = to;
		return;
	}
	history.replaceState(null, "", to);
	dispatchEvent(new HashChangeEvent("hashchange"));
}

// objectHash returns the address of an object, or of the objects of a kind.
export const objectHash = (k, inside = "", name = "", more = {}) => hash("objects", {
	group: k.group, version: k.version, resource: k.resource, inside, name, ...more,
});
