
"use strict";

// Whatever path the page is mounted under, with a slash at its end or without.
const base = location.origin + location.pathname.replace(/\/+$/, "");
const POLL_MS = 1000;
// What the chart shows: as much as was seen, each with the distance of its marks.
const SPANS = [[60_000, 15_000], [120_000, 30_000], [300_000, 60_000]];
const LONGEST_MS = SPANS.at(-1)[0];
const HOUR_MINUTES = 60;
// Over what the numbers beside it are averaged.
const RECENT_MS = 10_000;

const GROUPS = [
  { name: "allowed", label: "Allowed", history: "allowed", words: "allowed", results: ["allowed", "near_limit", "waited"] },
  { name: "denied", label: "Denied", history: "denied", words: "denied", results: ["denied", "denied_from_memory"] },
  { name: "shadow", label: "Would deny", history: "shadow_denied", words: "would have been denied", results: ["shadow_denied"], refusals: "shadow_refusals" },
  { name: "failed", label: "Store failed", history: "failed", words: "decided without the store", results: ["failed_open", "failed_closed"] },
  { name: "refused", label: "Refused", history: "refused", words: "refused", results: [], refusals: "refusals" },
];

const $ = (id) => document.getElementById(id);
const sum = (counts, names) => names.reduce((total, name) => total + (counts[name] ?? 0), 0);
const sumAll = (counts) => sum(counts, Object.keys(counts));

// Texts are only ever set as texts: names come from configurations, subjects from clients.
function element(name, attributes = {}, ...children) {
  const made = document.createElement(name);
  for (const [key, value] of Object.entries(attributes)) made.setAttribute(key, value);
  made.append(...children);
  return made;
}

function setText(node, text) {
  // What has not changed is not announced again, and a selection in it stays.
  if (node.textContent !== text) node.textContent = text;
}

// --- words -----------------------------------------------------------------------------------

const whole = new Intl.NumberFormat("en", { maximumFractionDigits: 0 });
const short = new Intl.NumberFormat("en", { notation: "compact", maximumFractionDigits: 1 });

function rate(perSecond) {
  if (perSecond === 0) return "0";
  if (perSecond < 0.1) return "< 0.1";
  return perSecond < 10 ? perSecond.toFixed(1) : perSecond < 10_000 ? whole.format(perSecond) : short.format(perSecond);
}

function time(ms) {
  const seconds = Math.ceil(ms / 1000);
  if (seconds < 120) return `${seconds} s`;
  if (seconds < 7200) return `${Math.floor(seconds / 60)} min`;
  const hours = Math.floor(seconds / 3600);
  return hours < 48 ? `${hours} h` : `${Math.floor(hours / 24)} days`;
}

function latency(us) {
  if (us < 1000) return `${Math.round(us)} µs`;
  return us < 100_000 ? `${(us / 1000).toFixed(1)} ms` : `${Math.round(us / 1000)} ms`;
}

// --- talking to the server -------------------------------------------------------------------

async function ask(path, body) {
  const post = { method: "POST", headers: { "content-type": "application/json" }, body: JSON.stringify(body) };
  const response = await fetch(`${base}/${path}`, {
    ...(body === undefined ? {} : post),
    cache: "no-store",
    signal: AbortSignal.timeout(10_000),
  });
  const type = response.headers.get("content-type") ?? "";
  const answer = /^application\/(problem\+)?json/.test(type) ? await response.json() : null;
  if (!response.ok || answer === null) {
    throw new Error(answer?.detail ?? `the server answered with status ${response.status}`);
  }
  return answer;
}

let hideToast;
function tell(text, undo) {
  const toast = $("toast");
  toast.replaceChildren(element("span", {}, text));
  if (undo) {
    const button = element("button", { type: "button" }, "Undo");
    button.addEventListener("click", undo);
    toast.append(button);
  }
  clearTimeout(hideToast);
  hideToast = setTimeout(() => toast.replaceChildren(), 12_000);
}

// --- what was seen ---------------------------------------------------------------------------

let seen = [];

function remember(state) {
  // Another process, or this one started anew: what it counts does not go on from before.
  if (seen.length > 0 && state.uptime_ms < seen.at(-1).uptime_ms) seen = [];
  seen.push(state);
  // One beyond the edge, so that the chart reaches it.
  while (seen.length > 2 && state.uptime_ms - seen[1].uptime_ms > LONGEST_MS) seen.shift();
}

// The states between which recent rates are taken.
function recent() {
  const to = seen.at(-1);
  const from = seen.find((state) => to.uptime_ms - state.uptime_ms <= RECENT_MS) ?? to;
  return { from, to, seconds: (to.uptime_ms - from.uptime_ms) / 1000 };
}

function grow(read) {
  const { from, to, seconds } = recent();
  return seconds > 0 ? Math.max(0, read(to) - read(from)) / seconds : 0;
}

const counted = (group) => (state) => sum(state.decisions, group.results) + sumAll(state[group.refusals] ?? {});

