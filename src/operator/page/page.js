
"use strict";

// Whatever path the page is mounted under, with a slash at its end or without.
const base = location.origin + location.pathname.replace(/\/+$/, "");
const POLL_MS = 1000;
// What the chart shows: as much as was seen, each with the distance of its marks.
const SPANS = [[60_000, 15_000], [120_000, 30_000], [300_000, 60_000]];
const LONGEST_MS = SPANS.at(-1)[0];
// Over what the numbers beside it are averaged.
const RECENT_MS = 10_000;

const GROUPS = [
  { name: "allowed", label: "Allowed", results: ["allowed", "near_limit", "waited"] },
  { name: "denied", label: "Denied", results: ["denied", "denied_from_memory"] },
  { name: "shadow", label: "Would deny", results: ["shadow_denied"], refusals: "shadow_refusals" },
  { name: "failed", label: "Store failed", results: ["failed_open", "failed_closed"] },
  { name: "refused", label: "Refused", results: [], refusals: "refusals" },
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

// --- the chart -------------------------------------------------------------------------------

const SVG = "http://www.w3.org/2000/svg";
function shape(name, attributes, text) {
  const made = document.createElementNS(SVG, name);
  for (const [key, value] of Object.entries(attributes)) made.setAttribute(key, value);
  if (text !== undefined) made.textContent = text;
  return made;
}

// The next number that is easily read, and whose half is too.
function roundUp(value) {
  const power = 10 ** Math.floor(Math.log10(value));
  return [1, 1.2, 1.6, 2, 3, 4, 5, 6, 8, 10].map((step) => step * power).find((step) => step >= value * 0.999);
}

function rates() {
  const points = [];
  for (let at = 1; at < seen.length; at++) {
    const from = seen[at - 1], to = seen[at];
    const seconds = (to.uptime_ms - from.uptime_ms) / 1000;
    if (seconds <= 0) continue;
    const each = GROUPS.map((group) => Math.max(0, counted(group)(to) - counted(group)(from)) / seconds);
    points.push({ at: to.uptime_ms, each });
  }
  return points;
}

function drawChart() {
  const box = $("chart");
  const { width, height } = box.getBoundingClientRect();
  if (width < 60 || seen.length === 0) return;
  const left = 40, bottom = height - 22, top = 8;
  const points = rates();
  const totals = points.map((point) => point.each.reduce((a, b) => a + b, 0));
  const highest = roundUp(Math.max(1, ...totals));
  const now = seen.at(-1).uptime_ms;
  const age = now - seen[0].uptime_ms;
  const [span, mark] = SPANS.find(([span]) => span >= age) ?? SPANS.at(-1);
  const x = (at) => Math.max(left, width - ((now - at) / span) * (width - left));
  const y = (value) => bottom - (value / highest) * (bottom - top);

  const svg = shape("svg", { role: "img", viewBox: `0 0 ${width} ${height}` });
  const shown = GROUPS.map((group) => `${group.label} ${rate(grow(counted(group)))}`).join(", ");
  svg.setAttribute("aria-label", `Decisions a second, the last ${time(span)}; now: ${shown}`);
  for (const share of [0, 0.5, 1]) {
    const at = Math.round(y(highest * share)) + 0.5;
    svg.append(shape("line", { x1: left, x2: width, y1: at, y2: at }));
    svg.append(shape("text", { x: left - 8, y: at + 4, "text-anchor": "end" }, short.format(highest * share)));
  }
  for (let ago = 0; ago <= span; ago += mark) {
    const anchor = ago === 0 ? "end" : ago === span ? "start" : "middle";
    const text = ago === 0 ? "now" : span > 120_000 ? `−${ago / 60_000} min` : `−${ago / 1000} s`;
    svg.append(shape("text", { x: x(now - ago), y: height - 4, "text-anchor": anchor }, text));
  }
  // Areas on top of each other, each from the sum of those before it.
  let floor = points.map(() => 0);
  GROUPS.forEach((group, position) => {
    const ceiling = points.map((point, at) => floor[at] + point.each[position]);
    if (points.length > 0 && ceiling.some((value, at) => value > floor[at])) {
      const along = (values, at) => `${x(points[at].at).toFixed(1)},${y(values[at]).toFixed(1)}`;
      const there = points.map((_, at) => along(ceiling, at));
      const back = points.map((_, at) => along(floor, at)).reverse();
      svg.append(shape("path", { class: group.name, d: `M${[...there, ...back].join("L")}Z` }));
    }
    floor = ceiling;
  });
  box.replaceChildren(svg);
}

const legend = GROUPS.map((group) => {
  const number = element("b", {}, "–");
  const name = element("span", {}, element("i", { class: group.name }), group.label);
  const item = element("li", { "data-group": group.name }, name, number);
  $("legend").append(item);
  return { group, item, number };
});

function drawLegend() {
  for (const { group, item, number } of legend) {
    setText(number, rate(grow(counted(group))));
    // Most limiters never refuse anybody; the others are always there to be compared.
    item.hidden = group.name === "refused" && counted(group)(seen.at(-1)) === 0;
  }
}

// --- the policies ----------------------------------------------------------------------------

const rows = new Map();

function makeRow(name) {
  const row = {
    limit: element("span", { class: "small" }),
    about: element("span", { class: "small about" }),
    failure: element("span", { class: "small failure" }),
    penalty: element("span", { class: "small penalty" }),
    group: element("span", { class: "small group" }),
    prefetch: element("span", { class: "small prefetch" }),
    mode: element("select", { "aria-label": `Mode of ${name}` }),
    cells: GROUPS.slice(0, 3).map((group) => ({
      group,
      now: element("span"),
      total: element("span", { class: "small" }),
    })),
    pending: false,
  };
  for (const mode of ["enforce", "shadow", "off"]) row.mode.append(element("option", { value: mode }, mode));
  row.mode.addEventListener("change", () => setMode(row, name, row.mode.value));
  const numbers = row.cells.map(({ group, now, total }) =>
    element("td", { role: "cell", class: "number", "data-label": group.label }, now, total));
  const title = element("td", { role: "cell" }, element("span", { class: "name" }, name),
    row.limit, row.about, row.failure, row.penalty, row.group, row.prefetch);
  row.node = element("tr", { role: "row" }, title, element("td", { role: "cell" }, row.mode), ...numbers);
  return row;
}

// A state that was asked for before one of them may tell what was before it.
let changes = 0;

async function change(path, body) {
  changes++;
  try {
    await ask(path, body);
  } finally {
    changes++;
  }
}

async function setMode(row, name, mode) {
  const before = seen.at(-1)?.policies.find((policy) => policy.name === name)?.mode;
  row.pending = true;
  try {
    await change("mode", { policy: name, mode });
    const undo = before && before !== mode ? () => setMode(row, name, before) : undefined;
    tell(`“${name}” is in mode ${mode}.`, undo);
  } catch (error) {
    tell(`“${name}” was not changed: ${error.message}`);
  }
  row.pending = false;
  poll();
}

// How much of a limit is held in advance, and what part of the recent decisions came from there.
function prefetchOf({ name, prefetch }) {
  if (prefetch === null) return "";
  const policy = (state) => state.policies.find((other) => other.name === name);
  const prefetched = grow((state) => policy(state)?.prefetched ?? 0);
  const decided = grow((state) => sumAll(policy(state)?.decisions ?? {}));
  const part = decided > 0 ? `; ${Math.floor((100 * prefetched) / decided)} % of recent decisions` : "";
  return `prefetch: ${prefetch}${part}`;
}

function drawPolicies(state) {
  const names = state.policies.map((policy) => policy.name);
  const before = JSON.stringify(template());
  templates = new Map(state.policies.map(({ name, subject }) => [name, subject]));
  const known = [...rows.keys()];
  if (names.length !== known.length || names.some((name, at) => name !== known[at])) {
    const old = new Map(rows);
    rows.clear();
    for (const name of names) rows.set(name, old.get(name) ?? makeRow(name));
    $("policies").replaceChildren(...[...rows.values()].map((row) => row.node));
    const chosen = $("policy").value;
    $("policy").replaceChildren(...names.map((name) => element("option", { value: name }, name)));
    if (names.includes(chosen)) $("policy").value = chosen;
  }
  if (JSON.stringify(template()) !== before) choosePolicy();
  for (const policy of state.policies) {
    const row = rows.get(policy.name);
    setText(row.limit, `${policy.algorithm}: ${policy.limit}`);
    setText(row.about, `by ${policy.key}, on ${policy.routes.join(", ") || "all requests"}`);
    setText(row.failure, `without the store: ${policy.on_store_failure}`);
    setText(row.penalty, policy.penalty === null ? "" : `penalty: ${policy.penalty}`);
    setText(row.group, policy.group === null ? "" : `group: ${policy.group}`);
    setText(row.prefetch, prefetchOf(policy));
    if (!row.pending && row.mode.value !== policy.mode) row.mode.value = policy.mode;
    for (const { group, now, total } of row.cells) {
      const read = (state) => {
        const found = state.policies.find((other) => other.name === policy.name);
        return found ? sum(found.decisions, group.results) : 0;
      };
      setText(now, rate(grow(read)));
      setText(total, short.format(read(state)));
    }
  }
}

// --- the store and the switch ----------------------------------------------------------------

const BREAKER = { closed: ["closed", "good"], half_open: ["half open", "warn"], open: ["open", "bad"] };

function drawStore({ store }) {
  setText($("store-name"), store.name);
  const outage = store.outage;
  setText($("outage"), outage ? `For ${time(outage.duration_ms)}; ${whole.format(outage.uncounted)} requests passed uncounted.` : "");
  const [word, tone] = BREAKER[store.breaker] ?? [store.breaker, "quiet"];
  setText($("breaker"), word);
  $("breaker").dataset.tone = tone;
  const { from, to } = recent();
  const questions = to.store.answers - from.store.answers;
  const took = to.store.answering_us - from.store.answering_us;
  // What it took before says nothing while nobody asks.
  const none = store.breaker === "closed" ? "–" : "no answer";
  setText($("latency"), store.breaker === "closed" && questions > 0 ? latency(took / questions) : none);
  setText($("questions"), rate(grow((state) => state.store.answers)));
  setText($("failures"), whole.format(store.failures));
  const failure = store.last_failure;
  setText($("last-failure"), failure ? `Last failure ${time(failure.ago_ms)} ago: ${failure.reason}.` : "");
}

const ENFORCEMENT = { full: ["Limiting", "good"], partial: ["Limiting in part", "warn"], none: ["Not limiting", "bad"] };

// What is true now. Single failures do not open the breaker, but their requests are not limited either.
function enforcement(state) {
  const failed = grow(counted(GROUPS.find((group) => group.name === "failed")));
  if (state.enforcement.status !== "full" || failed === 0) return state.enforcement;
  return { status: "partial", reason: `the store failed to answer ${rate(failed)} decisions a second lately` };
}

function drawSwitch(state) {
  const { on } = state;
  const button = $("switch"), power = $("power");
  const { status, reason } = enforcement(state);
  const [word, tone] = ENFORCEMENT[status] ?? [status, "quiet"];
  setText(power, word);
  power.dataset.tone = tone;
  setText($("enforcement"), reason === null ? "" : `${word}: ${reason}.`);
  $("enforcement").hidden = reason === null;
  setText(button, on ? "Turn limiting off…" : "Turn limiting on");
  button.className = on ? "danger" : "";
  button.hidden = false;
  document.title = status === "full" ? "Limits" : `${word.toUpperCase()}: Limits`;
}

function drawConfig({ config }) {
  $("config-fact").hidden = config === null;
  $("config").hidden = !config?.error;
  if (config === null) return;
  setText($("config-read"), `${time(config.read_ago_ms)} ago${config.error ? ", refused" : ""}`);
  setText($("config"), config.error ? `The file was refused, the limits before stay: ${config.error}` : "");
}

async function turn(on) {
  try {
    await change("switch", { on });
    tell(on ? "Limiting is on." : "Limiting is off.");
  } catch (error) {
    tell(`Nothing was changed: ${error.message}`);
  }
  poll();
}

$("switch").addEventListener("click", () => {
  if (seen.at(-1)?.on) $("confirm").showModal();
  else turn(true);
});
$("confirm").addEventListener("close", () => {
  if ($("confirm").returnValue === "off") turn(false);
  $("confirm").returnValue = "";
});

// --- who is denied most ----------------------------------------------------------------------

function drawTop({ top_denied: top }) {
  $("top").hidden = !top;
  if (!top) return;
  $("top-none").hidden = top.length > 0;
  const list = $("top-list");
  // Kept while nothing but a number changes, so that a button does not vanish under a finger.
  const shown = JSON.stringify(top.map(({ policy, subject, shown_subject, mode }) => [policy, subject, shown_subject, mode, rows.has(policy)]));
  if (list.dataset.shown !== shown) {
    list.dataset.shown = shown;
    list.replaceChildren(...top.map(({ policy, subject, shown_subject, mode }) => {
      const who = element("span", {}, element("span", { class: "name" }, policy), " ", element("code", {}, shown_subject ?? subject));
      // Who is hit by a policy in shadow mode has noticed nothing.
      if (mode === "shadow") who.append(" ", element("span", { class: "quiet small" }, "would be denied"));
      const line = element("li", {}, who, element("span", { class: "hot" }));
      // After a reload, nobody can be asked about a policy that is gone.
      if (rows.has(policy)) line.append(lookButton(policy, subject));
      else who.append(" ", element("span", { class: "quiet small" }, "policy removed"));
      return line;
    }));
  }
  top.forEach(({ denials, overestimate }, at) => {
    const least = short.format(denials - overestimate);
    setText(list.children[at].children[1], overestimate > 0 ? `≥ ${least}` : least);
  });
}

function lookButton(policy, subject) {
  const look = element("button", { type: "button", class: "plain", "aria-label": `Look at ${subject}` }, "Look");
  look.addEventListener("click", () => lookAt(policy, subject));
  return look;
}

function lookAt(policy, subject) {
  $("policy").value = policy;
  choosePolicy();
  $("kind").value = "hash";
  chooseKind();
  $("value").value = subject;
  about("peek");
}

// --- one subject -----------------------------------------------------------------------------

// For each policy a subject with blanks, or null if its key can be anything.
let templates = new Map();
const template = () => templates.get($("policy").value) ?? null;

// The blanks of a subject: a label each, and the part of the subject that a text makes.
function blanks(subject) {
  const labels = { address: "Client address", text: "Host", user: "User" };
  const parts = Array.isArray(subject) ? subject : [subject];
  return parts.map((part) => {
    if (typeof part !== "object") return { fill: () => part };
    const [[kind, { name }]] = Object.entries(part);
    if (kind === "header") return { label: `Header ${name}`, fill: (value) => ({ header: { name, value } }) };
    return { label: labels[kind] ?? kind, fill: (value) => ({ [kind]: value.trim() }) };
  });
}

// A key within a key has no form of its own.
const isKnown = (subject) => subject !== null &&
  (!Array.isArray(subject) || subject.every((part) => part !== null && !Array.isArray(part)));

function choosePolicy() {
  const subject = template(), known = isKnown(subject);
  const kind = $("kind"), own = kind.querySelector("option[value=key]");
  own.hidden = own.disabled = !known;
  if (known) kind.value = "key";
  else if (kind.value === "key" || kind.selectedIndex < 0) kind.value = "address";
  const fields = known ? blanks(subject).filter(({ label }) => label) : [];
  $("parts").replaceChildren(...fields.map(({ label }) =>
    element("label", {}, `${label} `, element("input", { spellcheck: "false", "aria-label": label }))));
  chooseKind();
}

function chooseKind() {
  const kind = $("kind").value;
  $("parts").hidden = kind !== "key";
  $("name-field").hidden = kind !== "header";
  $("value-field").hidden = ["key", "everybody", "missing"].includes(kind);
  $("value").placeholder = {
    address: "203.0.113.9", hash: "32 hexadecimal digits",
    json: '[{"address": "203.0.113.9"}, {"user": 7}]',
  }[kind] ?? "alice";
}

function subject() {
  const kind = $("kind").value, value = $("value").value;
  // Of a number beyond what a script counts exactly, somebody else would be meant.
  const part = (_, value) => {
    if (typeof value !== "number" || Number.isSafeInteger(value)) return value;
    throw new Error(`“${value}” is not a whole number below 2^53: write its digits as a text`);
  };
  switch (kind) {
    case "key": {
      const texts = [...$("parts").querySelectorAll("input")].map((input) => input.value);
      const parts = blanks(template()).map(({ label, fill }) => fill(label ? texts.shift() : undefined));
      return Array.isArray(template()) ? parts : parts[0];
    }
    case "everybody": case "missing": return kind;
    case "header": return { header: { name: $("name").value, value } };
    case "json": return JSON.parse(value, part);
    case "address": case "hash": return { [kind]: value.trim() };
    default: return { [kind]: value };
  }
}

async function about(verb) {
  const answer = $("answer");
  try {
    const quota = await ask(verb, { policy: $("policy").value, subject: subject() });
    const meter = element("meter", { min: 0, max: quota.capacity, value: quota.remaining, "aria-label": "left" });
    const words = [
      verb === "reset" ? "Reset." : "",
      quota.banned_for_ms === null ? "" : `Banned for ${time(quota.banned_for_ms)}.`,
      quota.reset_after_ms > 0 ? `As if never used in ${time(quota.reset_after_ms)}.` : "Nothing is in use.",
    ];
    answer.replaceChildren(
      element("p", {}, element("b", {}, whole.format(quota.remaining)), ` of ${whole.format(quota.capacity)} left`),
      meter,
      element("p", {}, words.filter(Boolean).join(" ")),
      element("p", { class: "quiet small" }, "Known to logs as ", element("code", {}, quota.subject)),
    );
  } catch (error) {
    answer.replaceChildren(element("p", { class: "wrong" }, error.message));
  }
}

$("kind").addEventListener("change", chooseKind);
$("policy").addEventListener("change", choosePolicy);
$("subject").addEventListener("submit", (event) => {
  event.preventDefault();
  about(event.submitter?.value === "reset" ? "reset" : "peek");
});
choosePolicy();

// --- the beat --------------------------------------------------------------------------------

let lastAnswer;
let polling = false;
async function poll() {
  if (polling) return;
  polling = true;
  try {
    let state, before;
    do {
      before = changes;
      state = await ask("state");
    } while (before !== changes);
    remember(state);
    lastAnswer = new Date();
    setText($("uptime"), `${state.host}, counting for ${time(state.uptime_ms)}`);
    drawSwitch(state);
    drawLegend();
    drawChart();
    drawPolicies(state);
    drawStore(state);
    drawConfig(state);
    drawTop(state);
    $("lost").hidden = true;
  } catch (error) {
    const since = lastAnswer ? `since ${lastAnswer.toLocaleTimeString()}` : "yet";
    setText($("lost"), `No answer ${since}: ${error.message}.`);
    $("lost").hidden = false;
  }
  polling = false;
}

new ResizeObserver(drawChart).observe($("chart"));
setInterval(poll, POLL_MS);
poll();
