// --- who is blocked --------------------------------------------------------------------------

function nameOf({ address, policy, subject }) {
  if (address !== null) return [element("code", {}, address)];
  return [element("span", { class: "name" }, policy), " ", element("code", {}, subject)];
}

function drawBlocks({ blocks, blocks_addresses: addresses }) {
  $("block-address").hidden = !addresses;
  $("blocks-none").hidden = blocks.length > 0;
  const list = $("blocks");
  // Kept while nothing but the time changes, so that a button does not vanish under a finger.
  const shown = JSON.stringify(blocks.map(({ id }) => id));
  if (list.dataset.shown !== shown) {
    list.dataset.shown = shown;
    list.replaceChildren(...blocks.map((block) => {
      const by = block.by === null ? "" : ` (${block.by})`;
      const who = element("span", {}, ...nameOf(block), element("span", { class: "quiet small reason" }, `${block.reason}${by}`));
      const lift = element("button", { type: "button", class: "plain", "aria-label": `Lift the block of ${block.address ?? block.subject}` }, "Lift");
      lift.addEventListener("click", () => unblock(block.id));
      return element("li", {}, who, element("span", { class: "left" }), lift);
    }));
  }
  blocks.forEach(({ left_ms: left }, at) => setText(list.children[at].children[1], `${time(left)} left`));
}

async function unblock(id) {
  try {
    await change("unblock", { id });
    tell("The block is lifted.");
  } catch (error) {
    tell(`Nothing was changed: ${error.message}`);
  }
  poll();
}

// Whom the dialog is about; null if its field says it.
let toBlock = null;

function askToBlock(asked, words) {
  toBlock = asked;
  setText($("block-who"), words);
  $("block-who").hidden = asked === null;
  $("address-field").hidden = asked !== null;
  $("address").required = asked === null;
  setText($("block-error"), "");
  setText($("block-about"), asked === null
    ? "Requests from there to this process are answered with 403, whatever they ask for."
    : "Requests with this key to this process are answered with 403 by every policy that counts by it and is not off.");
  $("block").showModal();
}

$("block-address").addEventListener("click", () => askToBlock(null, ""));
$("block-cancel").addEventListener("click", () => $("block").close());
$("block-form").addEventListener("submit", async (event) => {
  event.preventDefault();
  const whom = toBlock ?? { address: $("address").value };
  try {
    const block = await change("block", { ...whom, for_secs: Number($("block-time").value), reason: $("reason").value });
    $("block").close();
    $("block-form").reset();
    tell(`Blocked for ${time(block.left_ms)}.`, () => unblock(block.id));
  } catch (error) {
    setText($("block-error"), error.message);
  }
  poll();
});

// --- what was changed here -------------------------------------------------------------------

const CHANGES = { switch: "Limiting", mode: "Mode", reset: "Reset", block: "Block", unblock: "Block lifted" };

function drawChanges({ changes: all }) {
  $("changes-none").hidden = all.length > 0;
  const list = $("changes");
  const shown = JSON.stringify(all);
  if (list.dataset.shown === shown) return;
  list.dataset.shown = shown;
  list.replaceChildren(...all.map(({ at_ms: at, what, of, from, to, by }) => {
    const when = new Date(at);
    const date = when.toDateString() === new Date().toDateString() ? "" : `${when.toLocaleDateString()} `;
    const words = element("span", {}, element("span", { class: "name" }, CHANGES[what] ?? what));
    if (of !== null) words.append(" ", element("code", {}, of));
    words.append(element("span", { class: "quiet small reason" }, `${from} → ${to}`));
    const who = by === null ? "" : `, ${by}`;
    const stamp = element("span", { class: "quiet small stamp" }, `${date}${when.toLocaleTimeString()}${who}`);
    return element("li", {}, words, stamp);
  }));
}

