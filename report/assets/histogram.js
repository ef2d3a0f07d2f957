// Response times of all transactions: equal buckets on a logarithmic scale. A bar is a filter of the list.
Tapscope.histogram = (() => {
  const { data, theme, significant, chart: plot } = Tapscope;
  const { edges_ms: edges, count } = data.histogram;
  const chart = document.getElementById("histogram");
  const listeners = [];
  let chosen = null;

  const label = (i) => `${significant(edges[i], 2)} to ${significant(edges[i + 1], 2)} ms`;

  const draw = () => {
    const colours = count.map((_, i) => (chosen === null || chosen === i ? theme.tier(1) : theme.colour("line")));
    const decades = edges.map((edge, i) => [i, edge]).filter(([, edge]) => Math.abs(Math.log10(edge) % 1) < 1e-6);
    const ticks = decades.length > 1 ? decades : edges.map((edge, i) => [i, edge]).filter(([i]) => i % 3 === 0);
    plot.draw(chart, {
      x: {
        title: "response time, ms (logarithmic)", tickvals: ticks.map(([i]) => i), ticktext: ticks.map(([, edge]) => significant(edge, 1)),
        range: [0, count.length], showgrid: false,
      },
      y: plot.counts(count, "transactions", 1.6),
      traces: [plot.bars(count, (i, n) => `${label(i)}: ${n} transactions`, colours)],
      height: 300,
    });
  };

  const tell = (bucket) => {
    for (const listener of listeners) listener(bucket);
  };

  const choose = (bucket) => {
    chosen = bucket;
    draw();
  };

  const start = () => {
    if (!count.length) {
      chart.textContent = "No transaction was seen from beginning to end.";
      return;
    }
    draw();
    // A whole column answers, so that a bar of one transaction is as easy to hit as a tall one.
    let pressed = false;
    chart.addEventListener("pointerdown", () => { pressed = true; }, true);
    addEventListener("pointerup", (event) => {
      if (!pressed) return;
      pressed = false;
      const area = chart.querySelector(".nsewdrag").getBoundingClientRect();
      const bucket = Math.floor(count.length * (event.clientX - area.left) / area.width);
      if (event.clientY <= area.bottom && count[bucket]) tell(bucket === chosen ? null : bucket);
    });
    chart.addEventListener("keydown", (event) => {
      const move = { ArrowLeft: -1, ArrowRight: 1 }[event.key];
      if (event.key === "Escape") tell(null);
      else if (!move) return;
      else tell(Math.min(count.length - 1, Math.max(0, (chosen ?? (move > 0 ? -1 : count.length)) + move)));
      event.preventDefault();
    });
    theme.onChange(draw);
    theme.onResize(chart, draw);
  };

  return { start, choose, label, onPick: (listener) => listeners.push(listener) };
})();
