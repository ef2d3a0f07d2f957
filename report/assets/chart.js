// One plotting function for figures over two axes: points, bars and lines in the page's colours, with marks.
Tapscope.chart = (() => {
  const { theme } = Tapscope;
  const STATES = [
    { name: "idle", symbol: "circle", colour: () => theme.colour("soft") },
    { name: "normal", symbol: "circle", colour: (tier) => theme.tier(tier) },
    { name: "congested", symbol: "diamond-open", colour: () => theme.colour("mark") },
    { name: "stalled", symbol: "x-thin-open", colour: () => theme.colour("bad") },
  ];

  const axis = (given) => ({
    fixedrange: true, zeroline: false, gridcolor: theme.colour("grid"), linecolor: theme.colour("line"), showline: true,
    ticks: "outside", tickcolor: theme.colour("line"), ticklen: 3, exponentformat: "none", tickformat: ",~g",
    ...given, title: { text: given.title, standoff: 6 },
  });

  // Lines behind the points: {x} or {y} with words, a band {from, to} of x, or a segment {path: [[x, y], [x, y]]}.
  const shape = (mark) => {
    const line = { color: theme.colour(mark.colour || "soft"), width: 1.2, dash: mark.dash || "dash" };
    if (mark.path) {
      const [[x0, y0], [x1, y1]] = mark.path;
      return { type: "line", x0, y0, x1, y1, line, layer: "below" };
    }
    if (mark.band) {
      const fillcolor = `${theme.colour(mark.colour || "soft")}22`;
      return { type: "rect", x0: mark.band[0], x1: mark.band[1], yref: "paper", y0: 0, y1: 1, line: { width: 0 }, fillcolor, layer: "below" };
    }
    if (mark.x !== undefined) return { type: "line", x0: mark.x, x1: mark.x, yref: "paper", y0: 0, y1: 1, line, layer: "below" };
    return { type: "line", y0: mark.y, y1: mark.y, xref: "paper", x0: 0, x1: 1, line, layer: "below" };
  };

  const words = (mark) => ({
    text: mark.words, showarrow: false, font: { size: 10.5, color: theme.colour(mark.colour || "soft") }, bgcolor: theme.colour("surface"), borderpad: 1,
    ...(mark.x !== undefined
      ? { x: mark.x, yref: "paper", y: 1, xanchor: mark.left ? "right" : "left", yanchor: "top", xshift: mark.left ? -3 : 3, yshift: -(mark.down || 0) }
      : { y: mark.y, xref: "paper", x: 1, xanchor: "right", yanchor: "bottom" }),
  });

  // Draws into a place: {x, y: {title, type, range, ...}, traces, marks, height, hover}.
  const draw = (place, figure) => Plotly.react(place, figure.traces, {
    width: Math.max(place.clientWidth, 120), height: figure.height || 280, margin: { l: 64, r: 10, t: 8, b: 42 },
    paper_bgcolor: "rgba(0,0,0,0)", plot_bgcolor: "rgba(0,0,0,0)", font: { size: 11, color: theme.colour("soft") },
    showlegend: false, dragmode: false, hovermode: "closest", bargap: 0.06,
    hoverlabel: { bgcolor: theme.colour("surface"), font: { color: theme.colour("ink") }, bordercolor: theme.colour("line") },
    shapes: (figure.marks || []).map(shape),
    annotations: (figure.marks || []).filter((mark) => mark.words).map(words),
    xaxis: axis(figure.x), yaxis: axis(figure.y),
  }, { displayModeBar: false, showTips: false });

  // Traces of points whose kind is a state of windows, one per state that occurs; without kinds one trace.
  const states = (x, y, kinds, tier, hover) => {
    const marker = (state) => (state.symbol === "circle"
      ? { size: 4, symbol: state.symbol, color: state.colour(tier), opacity: 0.55, line: { width: 0 } }
      : { size: 6, symbol: state.symbol, color: state.colour(tier), opacity: 0.9, line: { width: 1.2, color: state.colour(tier) } });
    return STATES.flatMap((state, number) => {
      const rows = [...x.keys()].filter((i) => (kinds ? kinds[i] : 1) === number);
      if (!rows.length) return [];
      return [{
        type: "scatter", mode: "markers", name: state.name, x: rows.map((i) => x[i]), y: rows.map((i) => y[i]),
        marker: marker(state), hovertemplate: `${hover}<extra>${kinds ? state.name : ""}</extra>`,
      }];
    });
  };

  // Counts in equal bins: the bars, and an axis on which one call is as easy to see as a thousand.
  const bars = (count, hover, colours) => ({
    type: "bar", x: count.map((_, i) => i + 0.5), y: count, width: 0.92, marker: { color: colours },
    hovertext: count.map((n, i) => hover(i, n)), hoverinfo: "text", textposition: "none",
  });
  const counts = (count, what, room) => ({
    title: `${what} (logarithmic)`, type: "log", range: [Math.log10(0.6), Math.log10(Math.max(1, ...count) * room)], dtick: 1, tickformat: ",d",
  });

  return { draw, states, bars, counts, STATES };
})();
