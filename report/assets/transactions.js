// List of transactions: the slowest first, filtered by the zoomed window, an instant, or a response-time bucket.
Tapscope.transactions = (() => {
  const { data, column, element, significant, probability, utc, strips, histogram } = Tapscope;
  const waterfall = Tapscope.waterfall(document.getElementById("waterfall"), document.getElementById("call-detail"));
  const PAGE = 20;
  const raw = data.transactions;
  const begin = column(raw.begin);
  const end = column(raw.end);
  const all = raw.trace.map((trace, i) => ({
    trace, begin: begin[i], end: end[i], text: raw.class[i] || "(no class)", status: raw.status[i], calls: raw.calls[i],
    complete: raw.complete[i] === 1, probability: raw.probability[i] / 10000, concurrent: raw.concurrent[i],
    bucket: raw.bucket[i], first: raw.first[i], last: raw.first[i + 1],
  }));
  const body = document.querySelector("#list tbody");
  const filters = document.getElementById("filters");
  const more = document.getElementById("more");
  const listeners = [];
  const state = { at: null, bucket: null, shown: PAGE, chosen: null };

  const matching = () => {
    const [from, to] = strips.range().map((seconds) => seconds * 1e9);
    const everywhere = strips.isWhole();
    return all.filter((each) =>
      (everywhere || (each.begin < to && each.end > from)) &&
      (state.at === null || (each.begin <= state.at * 1e9 && each.end >= state.at * 1e9)) &&
      (state.bucket === null || each.bucket === state.bucket));
  };

  const chip = (text, clear) => {
    const made = element("button", { type: "button", class: "chip", title: "Remove this filter" }, `${text} ✕`);
    made.addEventListener("click", clear);
    return made;
  };

  const describeFilters = (found) => {
    const parts = [element("b", {}, `${found.length} of ${all.length} transactions of this page`)];
    if (!strips.isWhole()) {
      const [from, to] = strips.range();
      parts.push(chip(`in flight in ${from.toFixed(3)} to ${to.toFixed(3)} s`, () => strips.reset()));
    }
    if (state.at !== null) parts.push(chip(`in flight at ${state.at.toFixed(3)} s`, () => set({ at: null })));
    if (state.bucket !== null) parts.push(chip(histogram.label(state.bucket), () => set({ bucket: null })));
    filters.replaceChildren(...parts);
  };

  const rowOf = (each, place) => {
    const cell = (text, kind = "n") => element("td", { class: kind }, text);
    const name = cell(each.text, "class");
    name.title = each.text;
    const start = cell((each.begin / 1e9).toFixed(3));
    start.title = utc(each.begin / 1e9);
    const row = element("tr", { tabindex: "-1", "data-trace": each.trace },
      cell(String(place + 1)), start, cell(significant((each.end - each.begin) / 1e6)), name,
      cell(each.status < 0 ? "–" : String(each.status)), cell(String(each.calls)), cell(probability(each.probability)),
      cell(String(each.concurrent)));
    row.addEventListener("click", () => choose(each.trace));
    row.addEventListener("keydown", (event) => {
      const next = { ArrowDown: row.nextElementSibling, ArrowUp: row.previousElementSibling }[event.key];
      if (next) {
        choose(Number(next.dataset.trace));
        next.focus();
      } else if (event.key === "Enter" || event.key === " ") choose(each.trace);
      else return;
      event.preventDefault();
    });
    return row;
  };

  const list = () => {
    const found = matching();
    describeFilters(found);
    body.replaceChildren(...found.slice(0, state.shown).map(rowOf));
    if (!found.length) {
      body.append(element("tr", {}, element("td", { colspan: "8" }, "None of the transactions in this page; the run file may have some.")));
    }
    more.hidden = found.length <= state.shown;
    markChosen();
  };

  const markChosen = () => {
    const rows = [...body.querySelectorAll("tr[data-trace]")];
    for (const row of rows) {
      const chosen = Number(row.dataset.trace) === state.chosen;
      row.setAttribute("aria-selected", String(chosen));
      row.tabIndex = chosen ? 0 : -1;
    }
    if (rows.length && !rows.some((row) => row.tabIndex === 0)) rows[0].tabIndex = 0;
  };

  const choose = (trace) => {
    const found = all.find((each) => each.trace === trace);
    if (!found) return false;
    state.chosen = trace;
    waterfall.show(found);
    markChosen();
    for (const listener of listeners) listener(trace);
    return true;
  };

  const set = (change) => {
    Object.assign(state, change, { shown: PAGE });
    histogram.choose(state.bucket);
    list();
  };

  const start = () => {
    const words = document.getElementById("chosen-words");
    const number = (n) => n.toLocaleString("en").replace(/,/g, "\u202f");
    words.textContent = all.length
      ? `${number(all.length)} of ${number(data.total)} transactions are in this page: the slowest of the run, of every `
        + "stretch of time and of every response-time bucket, and those that findings hit. Choose one to see its calls."
      : "No transaction was seen from beginning to end.";
    more.addEventListener("click", () => { state.shown += PAGE; list(); });
    strips.onRange(() => { state.shown = PAGE; list(); });
    strips.onPick((at) => set({ at }));
    histogram.onPick((bucket) => set({ bucket }));
    list();
  };

  return { start, choose, all, chosen: () => state.chosen, onChoose: (listener) => listeners.push(listener) };
})();
