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
  if (verb === "reset") poll();
}

function blockSubject() {
  try {
    const asked = { policy: $("policy").value, subject: subject() };
    askToBlock(asked, `${asked.policy}: ${JSON.stringify(asked.subject)}`);
  } catch (error) {
    $("answer").replaceChildren(element("p", { class: "wrong" }, error.message));
  }
}

$("kind").addEventListener("change", chooseKind);
$("policy").addEventListener("change", choosePolicy);
$("subject").addEventListener("submit", (event) => {
  event.preventDefault();
  if (event.submitter?.value === "block") blockSubject();
  else about(event.submitter?.value === "reset" ? "reset" : "peek");
});
choosePolicy();

