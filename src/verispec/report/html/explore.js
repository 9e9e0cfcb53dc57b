"use strict";
(() => {
  const STEP = 100;
  const CLASS = { pass: "pass", fail: "fail", crash: "fail", timeout: "fail", xpass: "fail", xfail: "known" };
  const { runs, cases } = JSON.parse(document.getElementById("data").textContent);
  const byId = (id) => document.getElementById(id);
  const rows = byId("rows"), more = byId("more"), shown = byId("shown");
  const text = byId("text"), outcome = byId("outcome"), run = byId("run");
  let matching = cases, drawn = 0;

  const element = (name, content, className) => {
    const made = document.createElement(name);
    if (content !== undefined) made.textContent = content;
    if (className) made.className = className;
    return made;
  };
  const options = (select, values) => values.forEach(([value, label]) => {
    const option = element("option", label);
    option.value = value;
    select.append(option);
  });

  const counts = new Map();
  cases.forEach((row) => counts.set(row[2], (counts.get(row[2]) || 0) + 1));
  options(outcome, [...counts].sort().map(([name, count]) => [name, `${name} (${count})`]));
  if (run) options(run, runs.map((name, number) => [String(number), name]));

  const drawMore = () => {
    const fragment = document.createDocumentFragment();
    for (const [number, id, result, seconds, message, reach] of matching.slice(drawn, drawn + STEP)) {
      const row = element("tr"), state = element("td"), about = element("td");
      state.append(element("span", result, `state ${CLASS[result] || "open"}`));
      about.append(element("code", id));
      if (runs.length > 1) about.append(element("p", runs[number]));
      if (message) about.append(element("p", message));
      if (reach && CLASS[result] === "fail") about.append(element("p", `reached in production: ${reach}`));
      row.append(state, about, element("td", seconds.toFixed(2)));
      fragment.append(row);
    }
    rows.append(fragment);
    drawn = Math.min(drawn + STEP, matching.length);
    more.hidden = drawn === matching.length;
    shown.textContent = `${drawn} of ${matching.length} cases`;
  };

  const filter = () => {
    const words = text.value.toLowerCase().split(/\s+/).filter(Boolean);
    matching = cases.filter((row) =>
      (!outcome.value || row[2] === outcome.value) && (!run || !run.value || row[0] === Number(run.value)) &&
      words.every((word) => row[1].toLowerCase().includes(word) || row[4].toLowerCase().includes(word)));
    rows.replaceChildren();
    drawn = 0;
    drawMore();
  };

  let waiting;
  text.addEventListener("input", () => { clearTimeout(waiting); waiting = setTimeout(filter, 120); });
  outcome.addEventListener("change", filter);
  if (run) run.addEventListener("change", filter);
  more.addEventListener("click", drawMore);
  document.querySelector(".filter").addEventListener("submit", (event) => event.preventDefault());
  filter();

  document.querySelectorAll(".op button").forEach((button) => button.addEventListener("click", () => {
    const open = button.getAttribute("aria-expanded") !== "true";
    button.setAttribute("aria-expanded", String(open));
    button.closest("tbody").querySelectorAll(".clause").forEach((row) => { row.hidden = !open; });
  }));

  document.querySelectorAll("[data-copy]").forEach((button) => button.addEventListener("click", async () => {
    try {
      await navigator.clipboard.writeText(button.dataset.copy);
      button.textContent = "Copied";
    } catch {
      getSelection().selectAllChildren(button.previousElementSibling);
      button.textContent = "Selected";
    }
    setTimeout(() => { button.textContent = "Copy"; }, 1500);
  }));

  const live = document.body.dataset.live;
  if (live) {
    let version;
    setInterval(async () => {
      try {
        const now = await (await fetch(live)).text();
        if (version !== undefined && now !== version) location.reload();
        version = now;
      } catch { /* the server has stopped; the page stays as it is */ }
    }, 2000);
  }
})();
