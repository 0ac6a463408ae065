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

