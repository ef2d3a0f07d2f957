// Figures of one node over the whole run: load against throughput with N*, the distribution of response times, interval
// lengths side by side, and host metrics against load. One node at a time, chosen by its tab.
Tapscope.analysis = (() => {
  const { data, column, significant, element, theme, chart } = Tapscope;
  const place = document.getElementById("analysis-figures");
  const tabs = document.getElementById("analysis-nodes");
  const nodes = data.analysis;
  const number = (n) => n.toLocaleString("en").replace(/,/g, "\u202f");
  let chosen = 0;
  let drawn = [];

  const decoded = (points) => ({ ...points, x: column(points.x), y: column(points.y) });
  const highest = (values) => values.reduce((most, value) => (value > most ? value : most), 0);

  // How many of the windows are drawn, in words.
  const thinning = (points) => {
    const all = `${number(points.of)} windows`;
    if (!points.most) return all;
    return `${number(points.x.length)} of ${all}: at most ${points.most} of each of ${number(points.cells)} cells of the plane`;
  };

  // N* with its interval, the levels of throughput above it, and the line that load over service time would give.
  const pointMarks = (node, top) => {
    const { point } = node;
    const marks = point.levels.map((level, i) => ({ y: level, colour: "mark", dash: "dot", words: `level ${i + 1}` }));
    if (!point.reached) return marks;
    if (point.low !== null) marks.push({ band: [point.low, point.high], colour: "accent" });
    marks.push({ x: point.n_star, colour: "accent", words: `N* ${significant(point.n_star)}` });
    if (point.slope !== null) {
      const until = Math.min(point.n_star * 1.5, top / point.slope);
      marks.push({ path: [[0, 0], [until, until * point.slope]], colour: "soft", dash: "dot" });
    }
    return marks;
  };

  // Load against throughput of a node; `more` are further traces on top, `ranges` those of another figure.
  const loadThroughput = (where, node, points, { height = 300, more = [], ranges = null } = {}) => {
    const right = ranges ? ranges[0] : highest(points.x) * 1.04 || 1;
    const top = ranges ? ranges[1] : highest(points.y) * 1.06 || 1;
    const hover = `load %{x:.2f}<br>%{y:.0f} units/s, ${significant(points.ms, 3)} ms`;
    return chart.draw(where, {
      x: { title: "load, calls (time-weighted mean of the window)", range: [0, right] },
      y: { title: "throughput, work units/s", range: [0, top] },
      traces: [...chart.states(points.x, points.y, points.kind, node.colour, hover), ...more],
      // Small figures that are compared have no room for the words of their lines.
      marks: ranges ? pointMarks(node, top).map((mark) => ({ ...mark, words: "" })) : pointMarks(node, top), height,
    });
  };

  // Throughput that counts every call alike: in mixed traffic it follows the load less well than work units do.
  const notNormalised = (where, node, points) => chart.draw(where, {
    x: { title: "load, calls (time-weighted mean of the window)", range: [0, highest(points.x) * 1.04 || 1] },
    y: { title: "throughput, calls/s", range: [0, highest(points.y) * 1.06 || 1] },
    traces: chart.states(points.x, points.y, points.kind, node.colour, `load %{x:.2f}<br>%{y:.0f} calls/s, ${significant(points.ms, 3)} ms`),
    marks: node.point.reached ? [{ x: node.point.n_star, colour: "accent", words: "N*" }] : [],
    height: 240,
  });

  const followWords = ({ r, r_units: units }) => (r === null || units === null
    ? "Too few windows below N* to say whether throughput follows load."
    : `Below N* load correlates with completed calls by r = ${significant(r, 2)}, with work units by r = ${significant(units, 2)}.`);

  const times = (where, node) => {
    const { first, per_octave: octave, count, modes } = node.times;
    const at = (bin) => 2 ** ((first + bin) / octave) / 1e6;
    const label = (i) => `${significant(at(i), 3)} to ${significant(at(i + 1), 3)} ms`;
    const low = Math.log10(at(0));
    const high = Math.log10(at(count.length));
    const decades = [];
    for (let power = Math.floor(low) - 1; power <= Math.ceil(high); power++) decades.push(10 ** power, 3 * 10 ** power);
    const bin = (ms) => (Math.log2(ms * 1e6) * octave) - first;
    const shown = decades.filter((ms) => bin(ms) >= 0 && bin(ms) <= count.length);
    const marks = modes.map((mode, i) => ({
      x: bin(mode.ns / 1e6), colour: "mark", down: 13 * (i % 4), left: bin(mode.ns / 1e6) > count.length * 0.7,
      words: `${significant(mode.ns / 1e6)} ms${mode.ladder ? ` (${mode.ladder}: SYN again)` : ""}`,
    }));
    return chart.draw(where, {
      x: { title: "response time, ms (logarithmic)", tickvals: shown.map(bin), ticktext: shown.map((ms) => significant(ms, 1)), range: [0, count.length] },
      y: chart.counts(count, "calls", 4),
      traces: [chart.bars(count, (i, n) => `${label(i)}: ${number(n)} calls`, theme.tier(node.colour))],
      marks, height: 300,
    });
  };

  const against = (where, node, points) => chart.draw(where, {
    x: { title: "load, calls", range: [0, highest(points.x) * 1.04 || 1] },
    y: { title: points.unit, range: [0, highest(points.y) * 1.06 || 1] },
    traces: chart.states(points.x, points.y, null, node.colour, `load %{x:.2f}<br>%{y:.1f} ${points.unit}`),
    marks: node.point.reached ? [{ x: node.point.n_star, colour: "accent", words: "N*" }] : [],
    height: 240,
  });

  const nStarWords = (node) => {
    const { point } = node;
    const shares = Object.entries(point.shares).map(([name, percent]) => `${significant(percent, 3)} % ${name}`).join(", ");
    const found = point.reached
      ? `N* = ${significant(point.n_star)} calls (90 % interval ${significant(point.low)} to ${significant(point.high)}), `
        + `capacity ${significant(point.capacity)} work units/s, ${point.reason}`
      : `N* was not reached: ${point.reason}`;
    const unit = node.unit_us === null ? "" : ` A work unit is ${significant(node.unit_us)} µs of service.`;
    return `${found}.${unit} Windows of 50 ms: ${shares}.`;
  };

  // A figure: its caption, its chart, and words below; returns what draws it.
  const figure = (kind, caption, text, draw) => {
    const where = element("div", { class: "chart" });
    place.append(element("figure", { class: kind }, element("figcaption", {}, caption), where, element("p", { class: "hint" }, text)));
    return () => draw(where);
  };

  const show = (number_) => {
    chosen = number_;
    for (const [i, tab] of [...tabs.children].entries()) {
      tab.setAttribute("aria-selected", String(i === chosen));
      tab.tabIndex = i === chosen ? 0 : -1;
    }
    for (const old of place.querySelectorAll(".chart")) Plotly.purge(old);
    place.replaceChildren();
    const node = nodes[chosen];
    const widths = node.widths.map(decoded);
    const middle = widths[1];
    const raw = decoded(node.raw);
    const ranges = [highest(widths[0].x) * 1.04 || 1, highest(widths[0].y) * 1.06 || 1];
    drawn = [
      figure("wide", "Load against throughput, windows of 50 ms", `${nStarWords(node)} Drawn: ${thinning(middle)}.`,
        (where) => loadThroughput(where, node, middle)),
      figure("wide", `Response times of all ${node.entry ? "transactions" : "calls"}, with their modes`,
        `${number(node.times.count.reduce((a, b) => a + b, 0))} calls${node.entry ? ", with the wait for their connection" : ""}.`,
        (where) => times(where, node)),
      ...widths.map((points) => figure("third", `Interval length ${points.ms >= 1000 ? `${points.ms / 1000} s` : `${points.ms} ms`}`, `${thinning(points)}.`,
        (where) => loadThroughput(where, node, points, { height: 230, ranges }))),
      figure("half", "Load against calls in place of work units, windows of 50 ms", `${followWords(node.raw)} ${thinning(node.raw)}.`,
        (where) => notNormalised(where, node, raw)),
      ...node.host.map(decoded).map((points) => figure("half", `${points.name} against load, windows of 50 ms`,
        `Correlation r = ${points.r === null ? "–" : significant(points.r, 2)}. ${thinning(points)}.`,
        (where) => against(where, node, points))),
    ];
    for (const draw of drawn) draw();
  };

  const onKey = (event) => {
    const move = { ArrowLeft: -1, ArrowRight: 1 }[event.key];
    if (!move) return;
    show((chosen + move + nodes.length) % nodes.length);
    tabs.children[chosen].focus();
    event.preventDefault();
  };

  const start = () => {
    if (!nodes.length) return;
    tabs.append(...nodes.map((node, i) => {
      const tab = element("button", { type: "button", role: "tab", "aria-controls": "analysis-figures" },
        element("span", { class: `dot t${node.colour}` }), node.name);
      tab.addEventListener("click", () => show(i));
      tab.addEventListener("keydown", onKey);
      return tab;
    }));
    show(0);
    const redraw = () => { for (const draw of drawn) draw(); };
    theme.onChange(redraw);
    theme.onResize(place, redraw);
  };

  return { start, loadThroughput, decoded, thinning, nStarWords, nodes };
})();
