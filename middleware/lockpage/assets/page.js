"use strict";
// Keeps the page current: it takes what has changed from the server, and lets times run.
(() => {
  const state = document.getElementById("state");
  const url = document.body.dataset.events;
  if (!url || !window.EventSource) return;
  const policy = window.trustedTypes ? trustedTypes.createPolicy("lockpage", { createHTML: (s) => s }) : { createHTML: (s) => s };
  let skew = +state.dataset.now - Date.now(); // of the server's clock, against this one
  let stream, retry;

  const two = (n) => String(n).padStart(2, "0");
  const brief = (ms) => {
    const s = ms / 1000;
    if (s < 0) return "0 ms";
    if (s < 1) return Math.trunc(ms) + " ms";
    if (s < 10) return (Math.trunc(s * 10) / 10).toFixed(1) + " s";
    if (s < 60) return Math.trunc(s) + " s";
    if (s < 3600) return Math.trunc(s / 60) + " m " + two(Math.trunc(s % 60)) + " s";
    if (s < 172800) return Math.trunc(s / 3600) + " h " + two(Math.trunc((s % 3600) / 60)) + " m";
    return Math.trunc(s / 86400) + " days";
  };

  // tick writes the times below an element.
  const tick = (below) => {
    const now = Date.now() + skew;
    for (const t of below.querySelectorAll("time[data-t]")) {
      const ms = now - t.dataset.t;
      const text = brief("left" in t.dataset ? -ms : ms);
      if (t.firstChild) {
        if (t.firstChild.data !== text) t.firstChild.data = text;
      } else {
        t.append(text);
      }
    }
  };

  // parse makes elements of their text, which the server's templates have escaped.
  const parse = (html) => {
    const t = document.createElement("template");
    t.innerHTML = policy.createHTML(html);
    return [...t.content.children];
  };

  // morph makes one element like another, and keeps what is alike, so that the focus, what is
  // selected and what is opened stay.
  const morph = (from, to) => {
    if (from.nodeType !== to.nodeType || from.nodeName !== to.nodeName) return from.replaceWith(to);
    if (from.nodeType !== 1) {
      if (from.data !== to.data) from.data = to.data;
      return;
    }
    for (const a of [...from.attributes]) if (!to.hasAttribute(a.name)) from.removeAttribute(a.name);
    for (const a of to.attributes) if (from.getAttribute(a.name) !== a.value) from.setAttribute(a.name, a.value);
    if (from.dataset && from.dataset.t) return; // its text is for tick
    const olds = [...from.childNodes], news = [...to.childNodes];
    news.forEach((n, i) => (i < olds.length ? morph(olds[i], n) : from.append(n)));
    olds.slice(news.length).forEach((n) => n.remove());
  };

  // apply brings a section up to date.
  const apply = (change) => {
    const section = document.querySelector(`[data-s="${change.s}"]`);
    if (!section) return;
    const has = new Map();
    for (const e of section.children) has.set(e.id, e);
    for (const to of parse(change.p || "")) {
      const from = has.get(to.id);
      if (from) morph(from, to);
      else has.set(to.id, to);
    }
    if (!change.o && !change.e) return;
    const order = change.o || [], keep = new Set(order);
    for (const [id, e] of has) if (!keep.has(id)) e.remove();
    if (!order.length) return section.replaceChildren();
    let at = section.firstElementChild;
    for (const id of order) {
      const e = has.get(id);
      if (!e) continue;
      if (e === at) at = at.nextElementSibling;
      else if (at && at.nextElementSibling === e && !at.contains(document.activeElement)) {
        const was = at; // one place up: its predecessor goes behind it, and it keeps the focus
        at = e.nextElementSibling;
        section.insertBefore(was, at);
        at = was;
      } else section.insertBefore(e, at);
    }
  };

  const say = (on, text) => {
    if (state.textContent === text) return;
    state.className = "state " + (on ? "on" : "off");
    state.textContent = text;
  };

  // alarm colours the state of the page when the store fails.
  const alarm = () => document.body.classList.toggle("alarmed", !!document.querySelector(".alarm"));

  const open = () => {
    clearTimeout(retry);
    if (stream || document.hidden) return;
    stream = new EventSource(url);
    stream.onopen = () => say(true, "page is live");
    stream.onmessage = (e) => {
      const began = performance.now(), m = JSON.parse(e.data);
      skew = m.now - Date.now();
      const focus = document.activeElement;
      (m.d || []).forEach(apply);
      alarm();
      tick(document);
      if (focus && focus !== document.activeElement && focus.isConnected) focus.focus({ preventScroll: true });
      document.body.dispatchEvent(new CustomEvent("shown", { detail: performance.now() - began }));
    };
    stream.onerror = () => {
      const refused = stream.readyState === EventSource.CLOSED;
      say(false, refused ? "not live; reload the page" : "connection lost; trying again");
      if (!refused) return;
      close();
      retry = setTimeout(open, 10000);
    };
  };
  const close = () => {
    if (stream) stream.close();
    stream = undefined;
  };

  // Nobody looks at a page that is hidden, and then nothing is watched for it.
  document.addEventListener("visibilitychange", () => (document.hidden ? close() : open()));
  addEventListener("pagehide", close);
  addEventListener("pageshow", open);
  setInterval(() => document.hidden || tick(document), 250);
  tick(document);
  alarm();
  open();
})();
