// The views of the dashboard. The part of the address after # names the view and all that is chosen
// in it. A view is entered again whenever that changes.

import {enterChain, leaveChain} from "./chain.js";
import {$, $$, hash, hush, query} from "./dom.js";
import {enterHome, leaveHome} from "./home.js";
import {enterObjects, leaveObjects} from "./objects.js";
import {enterSearch} from "./search.js";
import {enterTry} from "./try.js";

const nothing = () => {};

const views = {
	home: [enterHome, leaveHome], chain: [enterChain, leaveChain],
	objects: [enterObjects, leaveObjects], search: [enterSearch, nothing], try: [enterTry, nothing],
};

// The views that have become parts of the chain.
const moved = ["inventory", "walk"];

let current = "";

function enter() {
	let [name] = location.hash.slice(1).split("?");
	if (moved.includes(name)) {
		history.replaceState(null, "", hash("chain", {...Object.fromEntries(query()), tab: name}));
		name = "chain";
	}
	const view = Object.hasOwn(views, name) ? name : "home";
	if (document.hidden || view !== current) {
		if (current) views[current][1]();
		hush();
	}
	for (const section of $$("main > section")) section.hidden = section.id !== "view-" + view;
	for (const link of $$("nav a")) {
		if (link.hash === "#" + view) link.setAttribute("aria-current", "page");
		else link.removeAttribute("aria-current");
	}
	const entered = view !== current;
	current = document.hidden ? "" : view;
	if (document.hidden) return;
	if (entered) scrollTo(0, 0);
	views[view][0]();
}

addEventListener("hashchange", enter);
document.addEventListener("visibilitychange", enter);
for (const form of document.forms) form.addEventListener("submit", e => e.preventDefault());
$("#skip").addEventListener("click", e => {
	e.preventDefault(); // the part of the address after # is the view
	$("#main").focus();
});
enter();
