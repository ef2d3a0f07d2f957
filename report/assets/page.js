// Ties the parts together. The zoomed window and the chosen transaction stand in the address: #t=1.5,2.25&tx=17;
// #finding-3 shows the page of a finding instead.
(async () => {
  const { strips, histogram, transactions, analysis, findings } = Tapscope;
  const click = (id, action) => document.getElementById(id).addEventListener("click", action);

  const fromAddress = () => {
    const found = new URLSearchParams(location.hash.slice(1));
    const [from, to] = (found.get("t") || "").split(",").map(Number);
    if (to > from) strips.setRange(from, to);
    return found.has("tx") ? Number(found.get("tx")) : null;
  };

  const toAddress = () => {
    const parts = [];
    if (!strips.isWhole()) parts.push(`t=${strips.range().map((at) => at.toFixed(6)).join(",")}`);
    if (transactions.chosen() !== null) parts.push(`tx=${transactions.chosen()}`);
    try {
      history.replaceState(null, "", `#${parts.join("&")}`);
    } catch {
      // Some browsers refuse this for files; the page works without.
    }
  };

  // The toolbar sticks below the header, which has two lines where the window is narrow.
  const header = document.querySelector("header");
  new ResizeObserver(() => {
    document.documentElement.style.setProperty("--header", `${header.offsetHeight}px`);
  }).observe(header);

  click("zoom-in", () => strips.zoom(0.5));
  click("zoom-out", () => strips.zoom(2));
  await strips.start();
  histogram.start();
  transactions.start();
  analysis.start();
  const wanted = fromAddress();
  if (wanted === null || !transactions.choose(wanted)) {
    if (transactions.all.length) transactions.choose(transactions.all[0].trace);
  }
  // A link to an episode zooms to it, one to a finding shows its page; the way back goes through the browser's history.
  addEventListener("hashchange", async () => {
    if (await findings.show(location.hash)) return;
    const zoomed = location.hash.startsWith("#t=");
    if (zoomed) fromAddress();
    document.getElementById(zoomed ? "timeline" : location.hash.slice(1))?.scrollIntoView();
  });
  strips.onRange(toAddress);
  transactions.onChoose(toAddress);
  await findings.show(location.hash);
  document.documentElement.dataset.ready = "yes";
})();
