"use strict";
// Columns of encode.py back to arrays, and numbers as people read them.
const Tapscope = {};

// A part of the page that fails says so instead of staying empty.
addEventListener("error", (event) => {
  document.documentElement.dataset.error = event.message;
  document.getElementById("failure").hidden = false;
});
addEventListener("unhandledrejection", (event) => {
  document.documentElement.dataset.error = String(event.reason);
  document.getElementById("failure").hidden = false;
});

Tapscope.column = ({ scale, delta }) => {
  const out = new Float64Array(delta.length);
  let sum = 0;
  for (let i = 0; i < delta.length; i++) {
    if (delta[i] === null) {
      out[i] = NaN;
    } else {
      sum += delta[i];
      out[i] = sum / scale;
    }
  }
  return out;
};

// Times in seconds from the start of the run.
Tapscope.axis = (axis) => {
  if (axis.micro) return Tapscope.column({ scale: 1e6, delta: axis.micro });
  return Float64Array.from({ length: axis.count }, (_, i) => (axis.first + i * axis.step) / 1e9);
};

// First index whose value is not below `x`.
Tapscope.lower = (sorted, x) => {
  let low = 0;
  let high = sorted.length;
  while (low < high) {
    const middle = (low + high) >> 1;
    if (sorted[middle] < x) low = middle + 1;
    else high = middle;
  }
  return low;
};

Tapscope.significant = (value, digits = 3) => {
  if (!Number.isFinite(value)) return "–";
  if (value === 0) return "0";
  const decimals = Math.max(0, digits - 1 - Math.floor(Math.log10(Math.abs(value))));
  return value.toLocaleString("en", {
    minimumFractionDigits: Math.min(decimals, 6),
    maximumFractionDigits: Math.min(decimals, 6),
  }).replace(/,/g, "\u202f");
};

Tapscope.duration = (ns) => {
  if (!Number.isFinite(ns)) return "–";
  for (const [limit, divisor, unit] of [[1e3, 1, "ns"], [1e6, 1e3, "µs"], [1e9, 1e6, "ms"]]) {
    if (Math.abs(ns) < limit) return `${Tapscope.significant(ns / divisor)} ${unit}`;
  }
  return `${Tapscope.significant(ns / 1e9, 4)} s`;
};

Tapscope.probability = (p) => (p > 0.9995 && p < 1 ? "> 0.999" : p.toFixed(3));

// An element with attributes and children; texts become text nodes, so that nothing in them is ever markup.
Tapscope.element = (name, attributes = {}, ...children) => {
  const svg = Tapscope.svgNames.has(name);
  const made = svg ? document.createElementNS("http://www.w3.org/2000/svg", name) : document.createElement(name);
  for (const [key, value] of Object.entries(attributes)) made.setAttribute(key, value);
  made.append(...children);
  return made;
};
Tapscope.svgNames = new Set(["svg", "rect", "line", "path", "text", "g", "circle"]);

Tapscope.data = JSON.parse(document.getElementById("data").textContent);
Tapscope.start = BigInt(Tapscope.data.start_ns);

// Instant, given in seconds from the start, as UTC with microseconds.
Tapscope.utc = (seconds) => {
  const ns = Tapscope.start + BigInt(Math.round(seconds * 1e9));
  const date = new Date(Number(ns / 1000000n));
  const micro = String(ns % 1000000n / 1000n).padStart(3, "0");
  return date.toISOString().replace("T", " ").replace("Z", `${micro} UTC`);
};
