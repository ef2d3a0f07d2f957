// Colours live in page.css; charts ask for them here and are redrawn when they change.
Tapscope.theme = (() => {
  const root = document.documentElement;
  const button = document.getElementById("theme");
  const dark = matchMedia("(prefers-color-scheme: dark)");
  const choices = ["system", "light", "dark"];
  const listeners = new Set();
  let choice = "system";
  let printing = false;

  // Paper is white and narrow: charts are drawn anew for it, and once more afterwards.
  const print = (now) => {
    printing = now;
    root.classList.toggle("printing", now);
    apply(true);
  };

  const apply = (redraw = false) => {
    const shown = printing ? "light" : choice === "system" ? (dark.matches ? "dark" : "light") : choice;
    if (redraw || root.dataset.theme !== shown) {
      root.dataset.theme = shown;
      for (const listener of listeners) listener();
    }
    button.textContent = `Theme: ${choice}`;
  };

  button.addEventListener("click", () => {
    choice = choices[(choices.indexOf(choice) + 1) % choices.length];
    apply();
  });
  dark.addEventListener("change", () => apply());
  addEventListener("beforeprint", () => print(true));
  addEventListener("afterprint", () => print(false));
  apply();

  const colour = (name) => getComputedStyle(root).getPropertyValue(`--${name}`).trim();
  return {
    colour,
    tier: (number) => colour(number > 0 ? `t${(number - 1) % 8 + 1}` : "t0"),
    // Charts get their container's width, in print too, and are drawn anew when it changes, and when they come out of
    // hiding. Both return what stops them.
    onResize: (container, redraw) => {
      let width = container.clientWidth;
      let waiting = 0;
      const observer = new ResizeObserver(() => {
        if (printing || container.clientWidth === width) return;
        width = container.clientWidth;
        cancelAnimationFrame(waiting);
        if (!width) return;
        waiting = requestAnimationFrame(redraw);
      });
      observer.observe(container);
      return () => observer.disconnect();
    },
    onChange: (listener) => {
      listeners.add(listener);
      return () => listeners.delete(listener);
    },
  };
})();
