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

