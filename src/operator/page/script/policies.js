// --- the policies ----------------------------------------------------------------------------

const rows = new Map();
const MODES = { enforce: ["enforced", "good"], shadow: ["shadow", "warn"], off: ["off", "bad"] };

function makeRow(name) {
  const row = {
    pill: element("span", { class: "pill" }),
    limit: element("span", { class: "small" }),
    about: element("span", { class: "small about" }),
    failure: element("span", { class: "small failure" }),
    penalty: element("span", { class: "small penalty" }),
    group: element("span", { class: "small group" }),
    prefetch: element("span", { class: "small prefetch" }),
    settle: element("span", { class: "small settle" }),
    mode: element("select", { "aria-label": `Mode of ${name}` }),
    share: element("input", { type: "number", min: "0", max: "100", step: "1", "aria-label": `Percent of the subjects for whom ${name} is enforced` }),
    cells: GROUPS.slice(0, 3).map((group) => ({
      group,
      now: element("span"),
      total: element("span", { class: "small" }),
    })),
    pending: false,
  };
  for (const mode of Object.keys(MODES)) row.mode.append(element("option", { value: mode }, mode));
  row.mode.addEventListener("change", () => setMode(row, name, row.mode.value));
  row.share.addEventListener("change", () => setMode(row, name, "enforce", `${row.share.value}%`));
  row.shares = element("label", { class: "small share" }, "for ", row.share, " %");
  const numbers = row.cells.map(({ group, now, total }) =>
    element("td", { role: "cell", class: "number", "data-label": group.label }, now, total));
  const title = element("td", { role: "cell" }, 
    element("span", { class: "heading" }, element("span", { class: "name" }, name), row.pill), row.limit, row.about, row.failure, row.penalty, row.group, row.prefetch, row.settle);
  row.node = element("tr", { role: "row" }, title, element("td", { role: "cell" }, row.mode, row.shares), ...numbers);
  return row;
}

// A state that was asked for before one of them may tell what was before it.
let changes = 0;

async function change(path, body) {
  changes++;
  try {
    return await ask(path, body);
  } finally {
    changes++;
  }
}

function inMode(mode, share) {
  return mode === "enforce" && share !== undefined && share !== "100%" ? `${mode} for ${share}` : mode;
}

async function setMode(row, name, mode, enforce) {
  const policy = seen.at(-1)?.policies.find((policy) => policy.name === name);
  row.pending = true;
  try {
    await change("mode", enforce === undefined ? { policy: name, mode } : { policy: name, mode, enforce });
    const share = enforce ?? policy?.enforced_for;
    const isChanged = policy && (policy.mode !== mode || policy.enforced_for !== share);
    const undo = isChanged ? () => setMode(row, name, policy.mode, policy.enforced_for) : undefined;
    tell(`“${name}” is in mode ${inMode(mode, share)}.`, undo);
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
    setText(row.settle, policy.settle === null ? "" : `cost: settled ${policy.settle}`);
    const [word, tone] = MODES[policy.mode] ?? [policy.mode, "quiet"];
    const isPart = policy.mode === "enforce" && policy.enforced_for !== "100%";
    setText(row.pill, isPart ? `${word} for ${policy.enforced_for}` : word);
    row.pill.dataset.tone = isPart ? "warn" : tone;
    row.shares.hidden = policy.mode !== "enforce";
    if (!row.pending && row.mode.value !== policy.mode) row.mode.value = policy.mode;
    if (!row.pending && document.activeElement !== row.share) row.share.value = parseInt(policy.enforced_for, 10);
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

