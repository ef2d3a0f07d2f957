// Waterfall of one transaction: a row per call, in the order in which calls were made; solid where the node itself
// worked (intra-node delay), light where it waited for the calls it made. Faint rows are uncertain links.
Tapscope.waterfall = (() => {
  const { data, column, element, duration, probability, utc, significant, theme } = Tapscope;
  const ROW = 22;
  const HEAD = 24;
  const INDENT = 13;
  const CHARACTER = 7.3; // width of a wide one at 12 px, only for shortening
  const MOST_ROWS = 600;
  const PROBABILITY = 10000;
  const LINK_KINDS = ["root", "linked", "unknown"];
  const tooltip = document.getElementById("tooltip");
  const raw = data.calls;
  const times = {};
  for (const name of ["arrive", "request_end", "response_begin", "depart", "intra"]) times[name] = column(raw[name]);
  const tcp = new Map(); // by call: what TCP did to it
  const tcpTimes = { begin: column(raw.tcp.begin), end: column(raw.tcp.end) };
  raw.tcp.call.forEach((call, i) => {
    const one = { begin: tcpTimes.begin[i], end: tcpTimes.end[i], words: raw.tcp.words[i] };
    tcp.set(call, [...(tcp.get(call) ?? []), one]);
  });
  const callsOf = (transaction) => {
    const calls = [];
    for (let i = transaction.first; i < transaction.last; i++) {
      calls.push({
        index: i - transaction.first,
        parent: raw.parent[i],
        node: raw.node[i],
        protocol: data.protocols[raw.protocol[i]] || "",
        text: raw.classes[raw.class[i]] || "(no class)",
        arrive: times.arrive[i],
        requestEnd: times.request_end[i],
        responseBegin: times.response_begin[i],
        depart: times.depart[i],
        intra: times.intra[i],
        status: raw.status[i],
        flags: raw.flags[i],
        kind: LINK_KINDS[raw.kind[i]] || "unknown",
        probability: raw.probability[i] / PROBABILITY,
        runnerProbability: raw.runner_probability[i] / PROBABILITY,
        runner: raw.runner_texts[raw.runner[i]],
        queue: raw.queue[i],
        tcp: tcp.get(i) ?? [],
        children: [],
        depth: 0,
      });
    }
    return calls;
  };

  // Depth first, children in order of arrival; calls whose parent is not here come as further roots.
  const inOrder = (calls) => {
    const roots = [];
    for (const call of calls) {
      const parent = calls[call.parent];
      if (parent && parent !== call) parent.children.push(call);
      else roots.push(call);
    }
    const rows = [];
    const stack = roots.reverse().map((call) => [call, 0]);
    while (stack.length) {
      const [call, depth] = stack.pop();
      call.depth = depth;
      rows.push(call);
      for (const child of [...call.children].reverse()) stack.push([child, depth + 1]);
    }
    return rows;
  };

  // What is left of the stay when the union of the children's stays is taken out.
  const ownTimes = (call, end) => {
    const parts = [];
    let at = call.arrive;
    const until = Number.isNaN(call.depart) ? end : call.depart;
    for (const child of call.children) {
      if (child.arrive > at) parts.push([at, Math.min(child.arrive, until)]);
      at = Math.max(at, Number.isNaN(child.depart) ? until : child.depart);
      if (at >= until) break;
    }
    if (at < until) parts.push([at, until]);
    return parts;
  };

  const tickStep = (span) => {
    const rough = span / 6;
    const power = 10 ** Math.floor(Math.log10(rough));
    return [1, 2, 5, 10].map((n) => n * power).find((n) => n >= rough);
  };

  const shortened = (text, width) => {
    const most = Math.max(3, Math.floor(width / CHARACTER));
    return text.length > most ? `${text.slice(0, most - 1)}…` : text;
  };

  const flagNames = (bits) => Object.entries(data.flags).filter(([bit]) => bits & bit).map(([, name]) => name);

  const facts = (call, transaction) => {
    const rows = [
      ["node", `${data.nodes[call.node]?.name ?? "?"} (${call.protocol})`],
      ["arrived", `${duration(call.arrive)} after the transaction began, ${utc((transaction.begin + call.arrive) / 1e9)}`],
      ["response time", duration(call.depart - call.arrive)],
      ["intra-node delay", duration(call.intra)],
      ["request, response on the wire", `${duration(call.requestEnd - call.arrive)}, ${duration(call.depart - call.responseBegin)}`],
      ["queue met on arrival", `${call.queue} calls`],
    ];
    if (call.status >= 0) rows.push(["status", String(call.status)]);
    if (call.kind === "linked") {
      rows.push(["link probability", probability(call.probability)]);
      rows.push(["runner-up", call.runner ? `${probability(call.runnerProbability)}: ${call.runner}` : "none"]);
    } else if (call.kind === "unknown") rows.push(["parent", "unknown"]);
    const flags = flagNames(call.flags);
    if (flags.length) rows.push(["flags", flags.join(", ")]);
    for (const one of call.tcp) rows.push(["TCP", one.end > one.begin ? `${one.words}: ${duration(one.end - one.begin)}` : one.words]);
    return rows;
  };

  const describe = (call, transaction) => [
    element("b", {}, call.text),
    element("dl", {}, ...facts(call, transaction).flatMap(([name, value]) => [element("dt", {}, name), element("dd", {}, value)])),
  ];

  const point = (event, call, transaction) => {
    tooltip.replaceChildren(...describe(call, transaction));
    tooltip.hidden = false;
    const { width, height } = tooltip.getBoundingClientRect();
    tooltip.style.left = `${Math.max(8, Math.min(event.clientX + 14, innerWidth - width - 8))}px`;
    tooltip.style.top = `${event.clientY + 18 + height > innerHeight ? event.clientY - height - 12 : event.clientY + 18}px`;
  };

  const row = (call, place, scale, transaction, detail) => {
    const y = HEAD + place * ROW;
    const colour = data.nodes[call.node]?.colour ?? 0;
    const sure = call.kind === "root" ? 1 : call.probability;
    const label = `${call.text}, ${data.nodes[call.node]?.name ?? ""}, response time ${duration(call.depart - call.arrive)}`;
    const node = element("g", {
      class: `row t${colour}`, tabindex: place === 0 ? "0" : "-1", role: "listitem", "aria-label": label, "data-call": call.index,
    });
    const x = 10 + call.depth * INDENT;
    node.append(element("rect", { class: "ground", x: 0, y, width: scale.width, height: ROW }));
    if (call.depth) node.append(element("path", { class: "tree", d: `M${x - INDENT + 4} ${y}v${ROW / 2}h${INDENT - 6}` }));
    node.append(element("rect", { x, y: y + 7, width: 8, height: 8, rx: 2, class: "intra" }));
    node.append(element("text", { x: x + 14, y: y + 15 }, shortened(call.text, scale.left - x - 22)));

    const bars = element("g", { opacity: (0.3 + 0.7 * sure).toFixed(2) });
    const open = Number.isNaN(call.depart);
    const end = open ? scale.end : call.depart;
    const from = scale.x(call.arrive);
    const wide = Math.max(1.5, scale.x(end) - from);
    bars.append(element("rect", { class: open ? "open" : "stay", x: from, y: y + 5, width: wide, height: ROW - 10, rx: 1.5 }));
    for (const [begin, until] of ownTimes(call, scale.end)) {
      const width = Math.max(0.8, scale.x(until) - scale.x(begin));
      bars.append(element("rect", { class: "intra", x: scale.x(begin), y: y + 7, width, height: ROW - 14 }));
    }
    for (const one of call.tcp) {
      const begin = scale.x(Math.min(Math.max(one.begin, 0), scale.end));
      const width = Math.max(2, scale.x(Math.min(Math.max(one.end, 0), scale.end)) - begin);
      bars.append(element("rect", { class: "tcp", x: begin, y: y + ROW - 5, width, height: 3 }));
    }
    node.append(bars);
    const cell = (text, right) => node.append(element("text", { class: "soft", x: right, y: y + 15, "text-anchor": "end" }, text));
    scale.columns.forEach(([, right, value]) => cell(value(call, sure), right));

    node.addEventListener("pointermove", (event) => point(event, call, transaction));
    node.addEventListener("pointerleave", () => { tooltip.hidden = true; });
    node.addEventListener("focus", () => detail.replaceChildren(...describe(call, transaction)));
    node.addEventListener("keydown", (event) => {
      const next = { ArrowDown: node.nextElementSibling, ArrowUp: node.previousElementSibling }[event.key];
      if (next?.classList.contains("row")) {
        node.setAttribute("tabindex", "-1");
        next.setAttribute("tabindex", "0");
        next.focus();
        event.preventDefault();
      }
    });
    return node;
  };

  const key = () => {
    const sample = (...parts) => element("svg", { viewBox: "0 0 34 12", class: "t1", "aria-hidden": "true" }, ...parts);
    const bar = (name, extra = {}) => element("rect", { class: name, x: 1, y: 1, width: 32, height: 10, ...extra });
    return element("div", { class: "key" },
      element("span", {}, sample(bar("intra")), "the node itself (intra-node delay)"),
      element("span", {}, sample(bar("stay")), "waiting for calls it made"),
      element("span", {}, sample(bar("open")), "no response seen"),
      element("span", {}, sample(bar("tcp", { y: 5, height: 3 })), "TCP waited: sent again, window closed, reset"),
      element("span", {}, sample(bar("intra", { opacity: 0.4 })), "faint: the link is uncertain"));
  };

  // A waterfall in a box; `detail` is where the call that has the focus is described.
  return (box, detail) => {
    let shown = null;

    const draw = () => {
      if (shown === null) return;
      const transaction = shown;
      const calls = callsOf(transaction);
      const rows = inOrder(calls);
      const length = Math.max(transaction.end - transaction.begin, ...calls.map((call) => (Number.isNaN(call.depart) ? 0 : call.depart)), 1);
      const width = Math.max(560, box.clientWidth - 2);
      const left = Math.min(430, Math.max(190, width * 0.34));
      const columns = width > 900
        ? [["response", width - 116, (call) => duration(call.depart - call.arrive)],
          ["own", width - 44, (call) => duration(call.intra)]]
        : [];
      columns.push(["prob.", width - 6, (call, sure) => (call.kind === "root" ? "root" : call.kind === "unknown" ? "?" : significant(sure, 2))]);
      const right = width - (columns.length > 1 ? 190 : 48);
      const scale = { width, left, columns, end: length, x: (at) => left + (right - left) * at / length };

      const svg = element("svg", { width, height: HEAD + Math.min(rows.length, MOST_ROWS) * ROW + 6, role: "list", "aria-label": "Calls of the transaction" });
      const step = tickStep(length);
      for (let at = 0; at <= length * 1.0001; at += step) {
        const x = scale.x(at);
        svg.append(element("line", { class: "gridline", x1: x, x2: x, y1: HEAD - 6, y2: "100%" }));
        svg.append(element("text", { class: "soft", x, y: 14, "text-anchor": at === 0 ? "start" : "middle" }, at === 0 ? "0" : duration(at)));
      }
      for (const [name, x] of columns) svg.append(element("text", { class: "soft", x, y: 14, "text-anchor": "end" }, name));
      rows.slice(0, MOST_ROWS).forEach((call, place) => svg.append(row(call, place, scale, transaction, detail)));

      const fact = (name, value) => element("span", {}, `${name} `, element("b", {}, value));
      const parts = [
        fact("transaction", `${transaction.trace}`), fact("class", transaction.text),
        fact("start", `${(transaction.begin / 1e9).toFixed(6)} s`),
        fact("response time", duration(transaction.end - transaction.begin)), fact("calls", String(transaction.calls)),
        fact("every link right", probability(transaction.probability)),
        fact("others in flight", String(transaction.concurrent)),
        fact("complete", transaction.complete ? "yes" : "no"),
      ];
      parts[2].title = utc(transaction.begin / 1e9);
      const notes = [];
      const more = transaction.calls - Math.min(rows.length, MOST_ROWS);
      if (more > 0) notes.push(element("p", { class: "hint" }, `${more} further calls are not drawn.`));
      box.replaceChildren(element("div", { class: "facts" }, ...parts), element("div", { class: "chartbox" }, svg), ...notes, key());
      detail.textContent = "";
    };

    const show = (transaction) => {
      shown = transaction;
      draw();
    };

    const stops = [theme.onChange(draw), theme.onResize(box, draw)];
    return { show, close: () => { for (const stop of stops) stop(); } };
  };
})();
