// Strips: every series on one time axis. Zoom one, zoom all; one cursor for all; all of it comes back with 0.
// A panel is given {strips, whole: [from, to], place, range, cursor, reset: elements, prefix of ids, band: [from, to]}.
Tapscope.stripPanel = (given) => {
  const { column, axis, lower, significant, element, utc, theme } = Tapscope;
  const POINTS = 20000; // more visible points of a series than this are drawn as minimum and maximum per pixel
  const MARKED_POINTS = 6000; // the same for series that are drawn with a dot per point
  const LEFT = 46;
  const RIGHT = 8;
  const HEIGHTS = { response: 150, queue: 112, throughput: 78 };
  const GROUPS = {
    response: ["Point-in-time response time", "calls that end in the window"],
    queue: ["Queue length", "time-weighted mean of the window, and its highest value"],
    throughput: ["Throughput", "calls completed in the window"],
    cores: ["CPU of each core", ""], gc: ["Garbage collection", ""], utilisation: ["Disk utilisation", ""], dirty: ["Dirty pages", ""],
    cpu: ["CPU", ""], disk: ["Disk", ""], network: ["Network", ""],
    named: ["What the cause names", "at the node where the queue began, and at other hosts"],
    node: ["The node where the queue began", ""],
    other: ["Other resources of its host", "for comparison"],
  };
  const ROLES = {
    mean: { width: 1.5, fill: 0.14 },
    rate: { width: 1, fill: 0.14 },
    max: { width: 0.9, opacity: 0.5 },
    event: { width: 1.5, dash: "2px,3px" },
    compared: { width: 1.2, dash: "6px,3px" },
    host: { width: 1.3 },
    origin: { width: 1.8, fill: 0.14 },
    elsewhere: { width: 1, opacity: 0.55 },
  };
  const MARKS = {
    mark: { symbol: "triangle-up", size: 7 }, syn: { symbol: "x-thin-open", size: 7 }, call: { symbol: "circle", size: 3.5 },
  };
  const { whole } = given;
  const stops = [];
  const gone = new AbortController();
  const listeners = { range: [], pick: [] };
  const strips = [];
  let range = [...whole];
  let cursor = null;
  let step = 0.05;

  const colourOf = (series) => {
    if (series.role === "event") return theme.colour("event");
    if (series.role === "mark" || series.role === "syn") return theme.colour("mark");
    return theme.tier(series.colour);
  };
  const faded = (hex, alpha) => hex + Math.round(alpha * 255).toString(16).padStart(2, "0");

  // Indices of the points to draw: all of them, or the lowest and highest of every pixel, so that no peak is lost.
  const drawn = (series, width) => {
    const low = Math.max(0, lower(series.x, range[0]) - 1);
    const high = Math.min(series.x.length, lower(series.x, range[1]) + 1);
    const most = series.dots ? MARKED_POINTS : POINTS;
    if (high - low <= most) return { low, high, indices: null };
    const buckets = Math.max(1, Math.floor(width));
    const indices = [];
    for (let bucket = 0; bucket < buckets; bucket++) {
      const from = low + Math.floor((high - low) * bucket / buckets);
      const to = low + Math.floor((high - low) * (bucket + 1) / buckets);
      let least = -1;
      let greatest = -1;
      for (let i = from; i < to; i++) {
        if (Number.isNaN(series.y[i])) continue;
        if (least < 0 || series.y[i] < series.y[least]) least = i;
        if (greatest < 0 || series.y[i] > series.y[greatest]) greatest = i;
      }
      if (least < 0) continue;
      indices.push(Math.min(least, greatest));
      if (least !== greatest) indices.push(Math.max(least, greatest));
    }
    return { low, high, indices };
  };

  const points = (series, width) => {
    // A series that fits is drawn whole, so that zooming only moves the axis.
    if (series.x.length <= (series.dots ? MARKED_POINTS : POINTS)) return [series.x, series.y];
    const { low, high, indices } = drawn(series, width);
    if (indices === null) return [series.x.subarray(low, high), series.y.subarray(low, high)];
    return [Float64Array.from(indices, (i) => series.x[i]), Float64Array.from(indices, (i) => series.y[i])];
  };

  const trace = (series, width) => {
    const colour = colourOf(series);
    const [x, y] = points(series, width);
    const base = { x, y, name: series.label, hoverinfo: "none", type: "scatter" };
    if (MARKS[series.role]) return { ...base, mode: "markers", marker: { ...MARKS[series.role], color: colour, line: { color: colour, width: 1 } } };
    const style = ROLES[series.role];
    return {
      ...base,
      mode: series.dots ? "lines+markers" : "lines",
      marker: { color: colour, size: 2.6 },
      line: { color: colour, width: style.width, shape: "hv", dash: style.dash || "solid", simplify: false },
      opacity: style.opacity || 1,
      fill: style.fill && !series.dots ? "tozeroy" : "none",
      fillcolor: style.fill ? faded(colour, style.fill) : undefined,
    };
  };

  const highest = (strip) => {
    let most = 0;
    for (const series of strip.series) {
      const low = Math.max(0, lower(series.x, range[0]) - 1);
      const high = lower(series.x, range[1]);
      for (let i = low; i < high; i++) if (series.y[i] > most) most = series.y[i];
    }
    return most > 0 ? most * 1.06 : 1;
  };

  const layout = (strip) => ({
    width: strip.plot.clientWidth,
    height: strip.height + (strip.last ? 20 : 0),
    margin: { l: LEFT, r: RIGHT, t: 5, b: strip.last ? 23 : 3 },
    paper_bgcolor: "rgba(0,0,0,0)",
    plot_bgcolor: "rgba(0,0,0,0)",
    showlegend: false,
    hovermode: false,
    dragmode: "zoom",
    shapes: !given.band ? [] : [{
      type: "rect", x0: given.band[0], x1: given.band[1], yref: "paper", y0: 0, y1: 1, line: { width: 0 }, layer: "below",
      fillcolor: faded(theme.colour("mark"), 0.12),
    }],
    font: { size: 11, color: theme.colour("soft") },
    xaxis: {
      range: [...range], showticklabels: strip.last, ticksuffix: " s", gridcolor: theme.colour("grid"), zeroline: false,
      showline: true, linecolor: theme.colour("line"), nticks: 12, minallowed: whole[0], maxallowed: whole[1],
      exponentformat: "none", separatethousands: true,
    },
    yaxis: {
      range: [0, highest(strip)], fixedrange: true, nticks: strip.height > 100 ? 5 : 4, gridcolor: theme.colour("grid"),
      zeroline: false, tickformat: /^(bytes|calls)\/s$/.test(strip.unit) ? "~s" : ",~g",
    },
  });

  const width = (strip) => Math.max(50, strip.plot.clientWidth - LEFT - RIGHT);

  const draw = (strip) => {
    const config = { displayModeBar: false, doubleClick: false, showTips: false };
    const traces = strip.series.map((series) => trace(series, width(strip)));
    return Plotly.react(strip.chart, traces, layout(strip), config);
  };

  // The value that holds at `x`: the last one not after it, unless that window observed nothing.
  const valueAt = (series, x) => {
    const i = lower(series.x, x + 1e-9) - 1;
    return i >= 0 ? series.y[i] : NaN;
  };

  // Large values with a prefix, so that they fit beside their strip.
  const shortened = (value) => {
    for (const [limit, prefix] of [[1e9, "G"], [1e6, "M"]]) {
      if (value >= limit) return `${significant(value / limit)} ${prefix}`;
    }
    return value >= 1e5 ? `${significant(value / 1e3)} k` : significant(value);
  };

  const peak = (series) => {
    let most = NaN;
    const high = lower(series.x, range[1]);
    for (let i = Math.max(0, lower(series.x, range[0]) - 1); i < high; i++) {
      if (!(series.y[i] <= most)) most = Number.isNaN(series.y[i]) ? most : series.y[i];
    }
    return most;
  };

  const read = () => {
    for (const strip of strips) {
      const plotWidth = width(strip);
      const at = cursor === null ? NaN : (cursor - range[0]) / (range[1] - range[0]);
      const shown = at >= 0 && at <= 1;
      strip.hair.hidden = !shown;
      if (shown) strip.hair.style.left = `${LEFT + at * plotWidth}px`;
      strip.series.forEach((series, i) => {
        const label = strip.values[i];
        if (MARKS[series.role]) {
          const number = lower(series.x, range[1]) - lower(series.x, range[0]);
          label.textContent = String(number);
        } else {
          label.textContent = cursor === null ? `peak ${shortened(peak(series))}` : shortened(valueAt(series, cursor));
        }
      });
    }
    given.cursor.textContent = cursor === null ? "" : `${cursor.toFixed(3)} s = ${utc(cursor)}`;
  };

  const setCursor = (at) => {
    cursor = at === null ? null : Math.min(whole[1], Math.max(whole[0], at));
    read();
  };

  const describe = () => {
    const text = `${range[0].toFixed(3)} s to ${range[1].toFixed(3)} s (${significant(range[1] - range[0])} s)`;
    given.range.textContent = text;
    given.range.title = `${utc(range[0])} to ${utc(range[1])}`;
    given.reset.disabled = isWhole();
  };

  const isWhole = () => range[0] <= whole[0] + 1e-9 && range[1] >= whole[1] - 1e-9;

  const setRange = (from, to) => {
    const least = Math.min(1e-4, whole[1]);
    let [low, high] = from <= to ? [from, to] : [to, from];
    if (high - low < least) high = low + least;
    low = Math.max(whole[0], Math.min(low, whole[1] - least));
    high = Math.min(whole[1], high);
    if (Math.abs(low - range[0]) < 1e-9 && Math.abs(high - range[1]) < 1e-9) return;
    range = [low, high];
    for (const strip of strips) draw(strip);
    describe();
    read();
    for (const listener of listeners.range) listener(range, isWhole());
  };

  const zoom = (factor) => {
    const middle = cursor !== null && cursor >= range[0] && cursor <= range[1] ? cursor : (range[0] + range[1]) / 2;
    setRange(middle - (middle - range[0]) * factor, middle + (range[1] - middle) * factor);
  };

  const reset = () => setRange(...whole);

  const timeAt = (strip, clientX) => {
    const left = strip.plot.getBoundingClientRect().left + LEFT;
    const fraction = (clientX - left) / width(strip);
    return fraction < 0 || fraction > 1 ? null : range[0] + fraction * (range[1] - range[0]);
  };

  const pick = (at) => {
    if (at === null) return;
    setCursor(at);
    for (const listener of listeners.pick) listener(at);
  };

  const onKey = (event) => {
    const from = cursor === null ? (range[0] + range[1]) / 2 : cursor;
    const move = { ArrowLeft: -1, ArrowRight: 1 }[event.key];
    if (move) {
      setCursor(from + move * step * (event.shiftKey ? 10 : 1));
      if (cursor < range[0] || cursor > range[1]) {
        const shift = cursor - (range[0] + range[1]) / 2;
        setRange(range[0] + shift, range[1] + shift);
      }
    } else if (event.key === "+" || event.key === "=") zoom(0.5);
    else if (event.key === "-") zoom(2);
    else if (event.key === "0") reset();
    else if (event.key === "Escape") setCursor(null);
    else if (event.key === "Enter") pick(from);
    else return;
    event.preventDefault();
  };

  const sample = (series) => {
    const style = ROLES[series.role];
    const kind = !style ? "dotmark" : style.dash ? "dash" : style.opacity ? "faint" : "";
    const made = element("i", { class: kind });
    series.sample = () => {
      const colour = colourOf(series);
      if (style) made.style.borderColor = colour;
      else made.style.background = colour;
    };
    series.sample();
    return made;
  };

  const build = (strip) => {
    const values = strip.series.map(() => element("b"));
    const readings = strip.series.map((series, i) =>
      element("div", { class: "reading" }, sample(series), element("span", {}, series.label), values[i]));
    const dot = strip.colour ? [element("span", { class: `dot t${strip.colour}` })] : [];
    const kind = strip.protocol ? `${strip.protocol}, ${strip.unit}` : strip.unit;
    const side = element("div", { class: "side" },
      element("div", { class: "name" }, ...dot, strip.title),
      element("div", { class: "unit" }, kind), ...readings);
    const chart = element("div", { class: "chart" });
    const hair = element("div", { class: "hair" });
    hair.hidden = true;
    const plot = element("div", { class: "plot" }, chart, hair);
    const name = `${(GROUPS[strip.group] || [strip.group])[0]} ${strip.title}, ${strip.unit}`;
    const node = element("div", { class: "strip", id: `${given.prefix}strip-${strip.id}`, tabindex: "0", role: "group", "aria-label": name },
      side, plot);
    Object.assign(strip, { node, plot, chart, hair, values });
    let pressed = null;
    plot.addEventListener("pointermove", (event) => { if (!event.buttons) setCursor(timeAt(strip, event.clientX)); });
    plot.addEventListener("pointerleave", (event) => { if (!event.buttons) setCursor(null); });
    plot.addEventListener("pointerdown", (event) => { pressed = [event.clientX, event.clientY]; }, true);
    addEventListener("pointerup", (event) => {
      if (pressed && Math.hypot(event.clientX - pressed[0], event.clientY - pressed[1]) < 4) pick(timeAt(strip, event.clientX));
      pressed = null;
    }, { signal: gone.signal });
    node.addEventListener("keydown", onKey);
    return node;
  };

  const load = () => {
    for (const strip of given.strips) {
      const series = strip.series.map((each) => ({
        ...each, x: axis(each.x), y: column(each.y),
        dots: strip.group === "response" && each.role === "mean",
      }));
      strips.push({ ...strip, series, height: HEIGHTS[strip.group] || 96 });
    }
    strips.forEach((strip, i) => { strip.last = strips[i + 1]?.group !== strip.group; });
    const first = strips.find((strip) => strip.group === "queue")?.series[0].x;
    if (first && first.length > 1) step = first[1] - first[0];
  };

  const start = async () => {
    load();
    const { place } = given;
    if (!strips.length) place.append(element("p", {}, "There are no calls, so there is nothing to draw."));
    let group = null;
    for (const strip of strips) {
      if (strip.group !== group) {
        group = strip.group;
        const [title, words] = GROUPS[group] || [group, ""];
        const notes = strips.filter((each) => each.group === group).map((each) => each.note).filter(Boolean);
        const text = [words, ...new Set(notes)].filter(Boolean).join("; ");
        place.append(element("h3", { class: "group" }, title, element("span", {}, text ? ` – ${text}` : "")));
      }
      place.append(build(strip));
    }
    for (const strip of strips) {
      await draw(strip);
      strip.chart.on("plotly_relayout", (event) => {
        if ("xaxis.range[0]" in event) setRange(event["xaxis.range[0]"], event["xaxis.range[1]"]);
      });
      strip.chart.on("plotly_doubleclick", reset);
    }
    describe();
    read();
    const redraw = () => {
      for (const strip of strips) {
        for (const series of strip.series) series.sample();
        draw(strip);
      }
      read();
    };
    given.reset.addEventListener("click", reset, { signal: gone.signal });
    stops.push(theme.onChange(redraw), theme.onResize(place, redraw));
  };

  const close = () => {
    for (const stop of stops) stop();
    gone.abort();
    for (const strip of strips) Plotly.purge(strip.chart);
    given.place.replaceChildren();
  };

  return {
    start, close, setRange, zoom, reset, setCursor,
    range: () => [...range],
    isWhole,
    onRange: (listener) => listeners.range.push(listener),
    onPick: (listener) => listeners.pick.push(listener),
  };
};

Tapscope.strips = Tapscope.stripPanel({
  strips: Tapscope.data.strips,
  whole: [0, Math.max(Tapscope.data.span_ns / 1e9, 1e-6)],
  place: document.getElementById("strips"),
  range: document.getElementById("range"),
  cursor: document.getElementById("cursor"),
  reset: document.getElementById("reset"),
  prefix: "",
});
