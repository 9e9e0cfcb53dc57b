"use strict";
(() => {
  const STEP = 100;
  const CLASS = { pass: "pass", fail: "fail", crash: "fail", timeout: "fail", xpass: "fail", xfail: "known" };
  const { runs, texts, cases } = JSON.parse(document.getElementById("data").textContent);  // texts by number
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

  const thousands = (count) => count.toLocaleString("en");
  const lower = texts.map((text) => text.toLowerCase());
  const counts = new Map();
  cases.forEach((row) => counts.set(row[2], (counts.get(row[2]) || 0) + 1));
  options(outcome, [...counts].map(([number, count]) => [texts[number], `${texts[number]} (${thousands(count)})`]).sort());
  if (run) options(run, runs.map((name, number) => [String(number), name]));

  const drawMore = () => {
    const fragment = document.createDocumentFragment();
    for (const [number, ...rest] of matching.slice(drawn, drawn + STEP)) {
      const [id, result, message, reach] = rest.slice(0, 4).map((place) => texts[place]), seconds = rest[4];
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
    shown.textContent = `${thousands(drawn)} of ${thousands(matching.length)} cases`;
  };

  const filter = () => {
    const words = text.value.toLowerCase().split(/\s+/).filter(Boolean);
    const wanted = texts.indexOf(outcome.value);
    const found = words.map((word) => lower.map((text) => text.includes(word)));  // once per text, not per case
    matching = cases.filter((row) =>
      (!outcome.value || row[2] === wanted) && (!run || !run.value || row[0] === Number(run.value)) &&
      found.every((contains) => contains[row[1]] || contains[row[3]]));
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

  const reveal = () => {  // a link into a closed part opens it
    const target = byId(decodeURIComponent(location.hash.slice(1)));
    let part = target && target.closest("details:not([open])");
    if (!part) return;
    for (; part; part = part.parentElement.closest("details:not([open])")) part.open = true;
    target.scrollIntoView();
  };
  addEventListener("hashchange", reveal);
  reveal();

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
