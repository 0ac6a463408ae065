// --- the charts ------------------------------------------------------------------------------

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

// An empty chart: lines for a number of easily read values, and what the values are drawn by.
function frame(box, values) {
  const { width, height } = box.getBoundingClientRect();
  if (width < 60) return null;
  const left = 40, bottom = height - 22, top = 8;
  const highest = roundUp(Math.max(1, ...values));
  const y = (value) => bottom - (value / highest) * (bottom - top);
  const svg = shape("svg", { role: "img", viewBox: `0 0 ${width} ${height}` });
  for (const share of [0, 0.5, 1]) {
    const at = Math.round(y(highest * share)) + 0.5;
    svg.append(shape("line", { x1: left, x2: width, y1: at, y2: at }));
    svg.append(shape("text", { x: left - 8, y: at + 4, "text-anchor": "end" }, short.format(highest * share)));
  }
  return { svg, width, height, left, y };
}

function drawChart() {
  const box = $("chart");
  if (seen.length === 0) return;
  const points = rates();
  const made = frame(box, points.map((point) => point.each.reduce((a, b) => a + b, 0)));
  if (made === null) return;
  const { svg, width, height, left, y } = made;
  const now = seen.at(-1).uptime_ms;
  const age = now - seen[0].uptime_ms;
  const [span, mark] = SPANS.find(([span]) => span >= age) ?? SPANS.at(-1);
  const x = (at) => Math.max(left, width - ((now - at) / span) * (width - left));

  const shown = GROUPS.map((group) => `${group.label} ${rate(grow(counted(group)))}`).join(", ");
  svg.setAttribute("aria-label", `Decisions a second, the last ${time(span)}; now: ${shown}`);
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

// The last hour as the server has counted it: a bar for each minute, the last of which is not over.
function drawHour() {
  const box = $("hour");
  const history = seen.at(-1)?.history;
  if (!history) return;
  const each = GROUPS.map((group) => history[group.history]);
  const minutes = each[0].length;
  const totals = each[0].map((_, at) => each.reduce((total, counts) => total + counts[at], 0));
  const made = frame(box, totals);
  if (made === null) return;
  const { svg, width, height, left, y } = made;
  const step = (width - left) / HOUR_MINUTES;
  const x = (at) => width - (minutes - at) * step;
  for (let ago = 0; ago <= HOUR_MINUTES; ago += width < 420 ? 30 : 15) {
    const anchor = ago === 0 ? "end" : ago === HOUR_MINUTES ? "start" : "middle";
    const text = ago === 0 ? "now" : `−${ago} min`;
    svg.append(shape("text", { x: width - ago * step, y: height - 4, "text-anchor": anchor }, text));
  }
  const floor = totals.map(() => 0);
  GROUPS.forEach((group, position) => {
    const bars = each[position].map((count, at) => {
      if (count === 0) return "";
      const [from, to] = [floor[at], floor[at] + count].map((value) => y(value).toFixed(1));
      floor[at] += count;
      return `M${x(at).toFixed(1)},${from}V${to}h${Math.max(1, step - 1).toFixed(1)}V${from}Z`;
    });
    if (bars.some((bar) => bar !== "")) svg.append(shape("path", { class: group.name, d: bars.join("") }));
  });
  const sums = GROUPS.map((group, position) => [group, each[position].reduce((a, b) => a + b, 0)]);
  const words = sums.filter(([group, count]) => count > 0 || group.name === "allowed" || group.name === "denied")
    .map(([group, count]) => `${short.format(count)} ${group.words}`).join(", ");
  const span = minutes === HOUR_MINUTES ? "In the last hour" : `In ${time(minutes * 60_000)} since the start`;
  setText($("hour-words"), `${span}: ${words}.`);
  svg.setAttribute("aria-label", `Decisions by the minute. ${$("hour-words").textContent}`);
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

