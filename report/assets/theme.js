// Colours live in page.css; charts ask for them here and are redrawn when they change.
Tapscope.theme = (() => {
  const root = document.documentElement;
  const button = document.getElementById("theme");
  const dark = matchMedia("(prefers-color-scheme: dark)");
  const choices = ["system", "light", "dark"];
  const listeners = [];
  let choice = "system";
  let printing = false;

  const apply = () => {
    const shown = printing ? "light" : choice === "system" ? (dark.matches ? "dark" : "light") : choice;
    if (root.dataset.theme !== shown) {
      root.dataset.theme = shown;
      for (const listener of listeners) listener();
    }
    button.textContent = `Theme: ${choice}`;
  };

  button.addEventListener("click", () => {
    choice = choices[(choices.indexOf(choice) + 1) % choices.length];
    apply();
  });
  dark.addEventListener("change", apply);
  addEventListener("beforeprint", () => { printing = true; apply(); });
  addEventListener("afterprint", () => { printing = false; apply(); });
  apply();

  const colour = (name) => getComputedStyle(root).getPropertyValue(`--${name}`).trim();
  return {
    colour,
    tier: (number) => colour(number > 0 ? `t${(number - 1) % 8 + 1}` : "t0"),
    onChange: (listener) => listeners.push(listener),
  };
})();
