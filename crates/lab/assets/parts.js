// What the pages of the lab and the page of a server have in common: figures with their units, colours, and the parts that
// charts are made of. It comes before the script of the page.
const parts = (function () {
  "use strict";

  const element = (tag, properties, ...children) => {
    const node = Object.assign(document.createElement(tag), properties);
    node.append(...children);
    return node;
  };
  const css = name => getComputedStyle(document.documentElement).getPropertyValue(name).trim();
  const font = () => "12px " + getComputedStyle(document.body).fontFamily;

  // Numbers and their units.
  const trim = value => (Math.abs(value) >= 1000 ? String(Math.round(value)) : String(+value.toPrecision(3)));
  const scaled = (value, steps) => {
    const step = steps.find(s => Math.abs(value) >= s[0] * 0.9999) || steps[steps.length - 1];
    return trim(value / step[0]) + step[1];
  };
  const figure = steps => v => (v == null ? "–" : v === 0 ? "0" : scaled(v, steps));
  const bytes = figure([[2 ** 50, " PiB"], [2 ** 40, " TiB"], [2 ** 30, " GiB"], [2 ** 20, " MiB"], [2 ** 10, " KiB"], [1, " B"]]);
  const flow = figure([[1e9, " GB/s"], [1e6, " MB/s"], [1e3, " kB/s"], [1, " B/s"]]);
  const rate = figure([[1e9, "G"], [1e6, "M"], [1e3, "k"], [1, ""]]);
  const micros = figure([[1e6, " s"], [1e3, " ms"], [1, " µs"]]);
  const nanos = figure([[1e9, " s"], [1e6, " ms"], [1e3, " µs"], [1, " ns"]]);

  // From the ground to what stands out most: viridis's lightness, turned around for a light ground.
  const ramps = {
    light: [[236, 239, 244], [160, 205, 225], [70, 150, 190], [45, 90, 150], [45, 20, 80]],
    dark: [[28, 33, 44], [55, 60, 125], [40, 125, 142], [95, 200, 100], [250, 230, 90]],
  };

  // Axes have the lines and ticks of the theme.
  const axis = more => Object.assign({
    font: font(), gap: 4, stroke: () => css("--faint"),
    grid: { stroke: () => css("--line"), width: 0.6 }, ticks: { stroke: () => css("--line"), width: 0.6, size: 4 },
  }, more);
  // A chart begins at zero, unless it is of powers of ten.
  const fromZero = (most, above) => ({ range: (u, low, high) => [0, most || (high > 0 ? high * above : 1)] });
  const powersOfTen = (low, high) => ({ distr: 3, range: (u, least, most) => (least == null ? [low, high] : uPlot.rangeLog(least, most, 10, false)) });
  // In the legend a line is dashed as it is in the chart.
  const legend = () => ({ markers: { dash: (u, i) => (u.series[i].dash && u.series[i].dash.length ? "dashed" : "solid") } });
  // A place for a chart: its heading, what else stands in that line, and where the chart goes.
  const frame = (parent, id, title, ...beside) => {
    const body = element("div");
    const head = element("div", { className: "head" }, element("h3", { textContent: title }), ...beside);
    const node = element("div", { className: "plot", id: "plot-" + id }, head, body);
    parent.append(node);
    return { node, body };
  };
  // Light or dark: as somebody chose, or as the system is.
  const themed = dark => {
    document.documentElement.classList.toggle("dark", dark);
    document.getElementById("theme").textContent = dark ? "Light" : "Dark";
  };

  return { element, css, font, trim, scaled, bytes, flow, rate, micros, nanos, ramps, axis, fromZero, powersOfTen, legend, frame, themed };
})();
