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
    drawHour();
    drawBlocks(state);
    drawChanges(state);
    $("lost").hidden = true;
  } catch (error) {
    const since = lastAnswer ? `since ${lastAnswer.toLocaleTimeString()}` : "yet";
    setText($("lost"), `No answer ${since}: ${error.message}.`);
    $("lost").hidden = false;
  }
  polling = false;
}

new ResizeObserver(drawChart).observe($("chart"));
new ResizeObserver(drawHour).observe($("hour"));
setInterval(poll, POLL_MS);
poll();
