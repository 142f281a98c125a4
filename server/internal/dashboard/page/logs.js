// The log of a pod's container.

import {$, changed, el, go, hush, listen, query} from "./dom.js";
import {count} from "./format.js";

// linesKept bounds the lines on the page.
const linesKept = 2000;

// colors matches the sequences with which programs color their logs on a terminal.
const colors = /\x1b\[[0-9;]*[A-Za-z]/g;

// Log is the log of a pod.
export class Log {
	constructor(name) {
		this.lines = el("pre", {class: "code log", tabindex: 0, role: "region",
			"aria-label": `Log of ${name}`});
		this.state = el("output", {});
		this.bar = el("div", {class: "tools"});
		this.element = el("div", {class: "logbox"}, this.bar, this.lines);
	}

	// show shows the log that the address asks for: parameters are those of the pod.
	show(parameters, containers) {
		const q = query(), container = q.get("container") ?? containers[0] ?? "";
		const previous = q.get("previous") ?? "";
		const asked = new URLSearchParams({...Object.fromEntries(parameters), container, previous,
			follow: previous || q.get("still") ? "" : "true"}).toString();
		// The pod has changed, and what has ended may have begun again.
		if (asked === this.asked && !this.ended) return;
		this.asked = asked;
		this.ended = false;
		this.controls(containers, container, previous, q.get("still"));
		this.lines.replaceChildren();
		this.state.textContent = "loading…";
		let began = false;
		listen("logs", "/logs?" + asked, {
			lines: lines => {
				began = true;
				this.add(lines);
			},
			ended: sentence => {
				hush("logs");
				this.ended = !previous;
				this.state.textContent = sentence || (began
					? `${count(this.lines.childElementCount, "line")}, the end` : "It has logged nothing.");
				this.state.classList.toggle("bad", Boolean(sentence));
			},
		}, sentence => {
			if (sentence) return this.state.textContent = sentence;
			this.lines.replaceChildren(); // the stream begins again
			this.state.textContent = "following";
		});
		this.state.classList.remove("bad");
	}

	stop() {
		this.asked = "";
		hush("logs");
	}

	controls(containers, container, previous, still) {
		const check = (name, text, on) => el("label", {class: "check"}, el("input", {type: "checkbox",
			"data-key": name, checked: Boolean(on), onchange: e => go(changed(name === "follow"
				? {still: e.target.checked ? "" : 1} : {previous: e.target.checked ? 1 : ""}), true)}), text);
		const follow = check("follow", "Follow", !still && !previous);
		$("input", follow).disabled = Boolean(previous);
		const focused = this.bar.contains(document.activeElement) && document.activeElement.dataset.key;
		this.bar.replaceChildren(containers.length > 1 ? el("select", {"aria-label": "Container",
			"data-key": "container", onchange: e => go(changed({container: e.target.value}), true)},
		...containers.map(c => el("option", {value: c, selected: c === container}, c))) : "", follow,
		check("previous", "Previous run", previous), this.state);
		if (focused) $(`[data-key="${CSS.escape(focused)}"]`, this.bar)?.focus();
	}

	// add adds lines at the end, and shows them unless the reader has scrolled up.
	add(lines) {
		const {scrollTop, scrollHeight, clientHeight} = this.lines;
		const atEnd = scrollTop + clientHeight > scrollHeight - 30;
		this.lines.append(...lines.map(l => el("span", {class: "line"}, l.replace(colors, ""))));
		while (this.lines.childElementCount > linesKept) this.lines.firstChild.remove();
		this.state.textContent = count(this.lines.childElementCount, "line") +
			(this.asked.includes("follow=true") ? ", following" : "");
		if (atEnd) this.lines.scrollTop = this.lines.scrollHeight;
	}
}
