// The page of one finding: shown when the address is #finding-3, drawn when it is shown, and cleared when it is left.
Tapscope.findings = (() => {
  const { data, column, axis, element, duration, probability, theme, analysis } = Tapscope;
  const main = document.querySelector("main");
  let left = null; // what leaves the page that is shown

  // Windows of the episode over those of the whole run: a line in order of time, its points by state.
  const episode = (windows) => {
    const at = axis(windows.at);
    const x = column(windows.x);
    const y = column(windows.y);
    const symbols = windows.kind.map((kind) => Tapscope.chart.STATES[kind].symbol);
    return [{
      type: "scatter", mode: "lines+markers", x, y, customdata: at, name: "episode",
      line: { color: theme.colour("ink"), width: 1 }, marker: { color: theme.colour("ink"), size: 7, symbol: symbols, line: { color: theme.colour("ink"), width: 1.4 } },
      hovertemplate: "%{customdata:.3f} s<br>load %{x:.2f}<br>%{y:.0f} units/s<extra>episode</extra>",
    }];
  };

  const scatter = (section, page) => {
    const node = analysis.nodes.find((each) => each.node === page.node);
    const place = section.querySelector(".load-throughput");
    if (!place || !node || !page.windows) return () => {};
    const points = analysis.decoded(node.widths[1]);
    section.querySelector(".load-throughput-words").textContent = `Windows of 50 ms of the whole run; those of the episode are `
      + `joined in order of time. ${analysis.nStarWords(node)} Drawn: ${analysis.thinning(points)}.`;
    const draw = () => analysis.loadThroughput(place, node, points, { height: 340, more: episode(page.windows) });
    draw();
    const stops = [theme.onChange(draw), theme.onResize(place, draw)];
    return () => {
      for (const stop of stops) stop();
      Plotly.purge(place);
    };
  };

  // Transactions that it hit, as rows that choose whose waterfall is shown.
  const hits = (section, page) => {
    const waterfall = Tapscope.waterfall(section.querySelector(".waterfall"), section.querySelector(".call-detail"));
    const place = section.querySelector(".hits");
    const known = page.hits.map((trace, i) => ({
      ...Tapscope.transactions.all.find((each) => each.trace === trace), waited: page.waited[i], late: page.late[i],
    })).filter((each) => each.trace !== undefined);
    if (!known.length) {
      place.replaceChildren(element("p", {}, "No transaction was under way from beginning to end."));
      return () => waterfall.close();
    }
    const choose = (each, row) => {
      for (const other of place.querySelectorAll("tbody tr")) other.setAttribute("aria-selected", String(other === row));
      waterfall.show(each);
    };
    const rows = known.map((each) => {
      const cell = (text, kind = "n") => element("td", { class: kind }, text);
      const row = element("tr", { tabindex: "0", "data-trace": each.trace, "aria-selected": "false" },
        cell((each.begin / 1e9).toFixed(3)), cell(duration(each.end - each.begin)), cell(each.waited > 0 ? duration(each.waited) : "–"),
        cell(each.late ? "very long" : "", ""), cell(each.text, "class"), cell(each.status < 0 ? "–" : String(each.status)),
        cell(String(each.calls)), cell(probability(each.probability)), cell(String(each.concurrent)));
      row.addEventListener("click", () => choose(each, row));
      row.addEventListener("keydown", (event) => {
        if (event.key !== "Enter" && event.key !== " ") return;
        choose(each, row);
        event.preventDefault();
      });
      return row;
    });
    const head = [["start s", "n"], ["response", "n"], ["set-up of its connection", "n"], ["", ""], ["class", ""], ["status", "n"],
      ["calls", "n"], ["prob.", "n"], ["others in flight", "n"]];
    place.replaceChildren(element("table", {},
      element("thead", {}, element("tr", {}, ...head.map(([text, kind]) => element("th", { class: kind, scope: "col" }, text)))),
      element("tbody", {}, ...rows)));
    choose(known[0], rows[0]);
    return () => {
      waterfall.close();
      place.replaceChildren();
      section.querySelector(".waterfall").replaceChildren();
    };
  };

  const leave = () => {
    if (left === null) return;
    left();
    left = null;
    main.classList.remove("one-finding");
  };

  // Whether the address names a finding; its page is then shown.
  const show = async (fragment) => {
    const found = /^#finding-(\d+)$/.exec(fragment);
    const page = found && data.findings.find((each) => each.number === Number(found[1]));
    leave();
    if (!page) return false;
    const section = document.getElementById(`finding-${page.number}`);
    main.classList.add("one-finding");
    const part = (name) => section.querySelector(`.${name}`);
    const strips = Tapscope.stripPanel({
      strips: page.strips, whole: page.shown, band: page.band, prefix: `${section.id}-`,
      place: part("strips"), range: part("range"), cursor: part("cursor"), reset: part("reset"),
    });
    const stops = [() => strips.close(), scatter(section, page), hits(section, page)];
    left = () => { for (const stop of stops) stop(); };
    scrollTo(0, 0);
    section.querySelector("h2").focus({ preventScroll: true });
    await strips.start();
    return true;
  };

  return { show };
})();
