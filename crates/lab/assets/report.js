// Draws the report's plots from the JSON in #data. Line plots are uPlot's; heat maps are drawn here on the canvas of a
// uPlot without lines, which gives them axes, zoom and a cursor in step with the others. Text from the record enters
// the page as text only.
(function () {
  "use strict";

  // What was drawn, for tests: series, points or cells by plot, and every error. It ends up in #drawn. With #check in
  // the address it is also looked whether there is colour on each canvas.
  const drawn = { plots: {}, zoom: null, errors: [] };
  const tell = () => {
    if (location.hash === "#check") drawn.layout = layout();
    document.getElementById("drawn").textContent = JSON.stringify(drawn);
  };
  // How wide the page is and how wide what it holds; what is said that is not seen whole; maps, and their scales.
  const layout = () => {
    const page = document.documentElement, all = selector => [...document.querySelectorAll(selector)];
    const cut = node => {
      const box = node.getBoundingClientRect();
      return node.scrollWidth > node.clientWidth + 1 || box.right > page.clientWidth + 1 || box.height === 0;
    };
    return { width: page.clientWidth, over: page.scrollWidth - page.clientWidth, said: all(".said > li").length,
             cut: all("main > section > .said > li").filter(cut).length, maps: all("[id^=plot-heat-], [id^=plot-places-]").length,
             scales: all(".scale").map(scale => [...scale.querySelectorAll(".ticks span")].map(tick => tick.textContent)) };
  };
  window.addEventListener("error", event => { drawn.errors.push(String(event.message)); tell(); });
  window.addEventListener("unhandledrejection", event => { drawn.errors.push(String(event.reason)); tell(); });
  window.addEventListener("securitypolicyviolation", event => { drawn.errors.push("request: " + event.blockedURI); tell(); });

  const { element, css, font, trim, rate, bytes, nanos: latency, ramps } = parts;
  const data = JSON.parse(document.getElementById("data").textContent);
  if (!data) return;

  // Okabe and Ito's colours (Color Universal Design, 2008) and a violet, which the colour-blind tell apart too; of each
  // theme those that stand out from its ground. What was measured and what is a model's share none, on any page; within
  // an origin dashes tell more lines apart.
  const colours = {
    light: { measured: ["#0072b2", "#d55e00", "#009e73", "#000000"], modelled: ["#cc79a7", "#e69f00", "#56b4e9", "#7b4fa3"] },
    dark: { measured: ["#56b4e9", "#d55e00", "#009e73", "#ffffff"], modelled: ["#cc79a7", "#e69f00", "#f0e442", "#b39ddb"] },
  };
  const colour = (origin, hue) => { const own = colours[theme()][origin]; return own[hue % own.length]; };
  const hues = 4;
  const dashes = [[], [8, 4], [2, 3], [10, 3, 2, 3], [14, 5], [5, 2], [1, 2], [8, 3, 2, 3, 2, 3]];

  const view = { dark: false, zoom: null, window: Math.max(0, data.windows.findIndex(w => w.chosen)), hidden: new Set(),
                 side: "both", latency: 0, load: 0, print: false };
  let plots = [];
  const theme = () => (view.dark ? "dark" : "light");
  const percent = v => (v == null ? "–" : trim(v) + " %");
  const clock = v => {
    if (v == null) return "–";
    if (data.end < 120) return trim(v) + " s";
    const s = Math.round(v), two = n => String(n).padStart(2, "0");
    return s < 3600 && data.end < 7200 ? Math.floor(s / 60) + ":" + two(s % 60)
      : Math.floor(s / 3600) + ":" + two(Math.floor(s / 60) % 60) + ":" + two(s % 60);
  };
  const nines = v => {
    if (v < 1) return trim(100 - 100 * 10 ** -v) + " %";
    return (100 - 10 ** (2 - v)).toFixed(Math.max(0, Math.round(v) - 2)) + " %";
  };

  // Axes: the label beside them.
  const axis = (label, values, more) => parts.axis(Object.assign({
    label, labelFont: font(), labelSize: 18, stroke: () => css("--text"),
    ticks: { stroke: () => css("--line"), width: 0.6, size: 5 },
    values: (u, splits) => splits.map(v => (v == null ? "" : values(v))),
    // What is to be labelled is chosen where the splits are.
    filter: (u, splits) => splits,
  }, more));
  const left = (label, values, more) => axis(label, values, Object.assign({ size: 62 }, more));
  const bottom = (label, values, more) => axis(label, values, Object.assign({ size: 30, labelSize: 16 }, more));
  const timeSteps = [1e-6, 1e-5, 1e-4, 1e-3, 2e-3, 5e-3, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1, 2, 5, 10, 15, 30, 60, 120, 300,
                     600, 900, 1800, 3600, 7200, 14400, 21600, 43200, 86400, 172800, 432000, 864000, 8640000, 86400000];
  const timeAxis = () => bottom("time since the run began" + (data.end < 120 ? "" : data.end < 7200 ? " (min:s)" : " (h:min:s)"),
                                clock, { incrs: timeSteps, space: 70 });
  const logScale = () => parts.powersOfTen(1, 10);
  const fromZero = () => parts.fromZero(null, 1.06);
  // Of a logarithmic axis the tens are labelled, 2 and 5 where there are few tens, all digits where there is not even one,
  // and the ends where it is shorter than that: an axis with one label has no scale.
  const tens = (u, axis, low, high) => {
    const out = [], reach = Math.log10(high / low);
    const digits = reach < 0.7 ? [1, 2, 3, 4, 5, 6, 7, 8, 9] : reach < 2.5 ? [1, 2, 5] : [1];
    for (let ten = Math.floor(Math.log10(low)); ten <= Math.ceil(Math.log10(high)); ten++)
      for (const digit of digits) {
        const v = digit * 10 ** ten;
        if (v >= low * 0.999 && v <= high * 1.001) out.push(v);
      }
    return out.length > 1 ? out : [low, Math.sqrt(low * high), high];
  };

  const zoomTo = range => {
    view.zoom = drawn.zoom = range;
    for (const { u, home } of plots) if (home) u.setScale("x", { min: (range || home)[0], max: (range || home)[1] });
  };
  const timeCursor = () => ({
    sync: { key: "time", scales: ["x", null], filters: { pub: type => type === "mousemove" || type === "mouseleave" } },
    drag: { x: true, y: false, setScale: false },
    bind: { dblclick: () => () => { zoomTo(null); return null; } },
  });
  // A drag over a plot of time zooms all of them.
  const timeZoom = u => {
    if (u.select.width < 4) return;
    zoomTo([u.posToVal(u.select.left, "x"), u.posToVal(u.select.left + u.select.width, "x")]);
    u.setSelect({ left: 0, top: 0, width: 0, height: 0 }, false);
    tell();
  };

  // A place for a plot: its heading, and beside that what is under the cursor.
  const frame = (parent, id, title) => {
    const hover = element("span", { className: "hover" });
    const { node, body } = parts.frame(parent, id, title, hover);
    // A landscape A4 page has some 1030 pixels, and is not laid out when the plots are made for it.
    const paper = parent.className === "pair" ? 500 : 1020;
    return { body, hover, width: () => (view.print ? paper : Math.max(300, node.clientWidth)) };
  };

  // A plot of time has a home: the range that it shows when it is not zoomed.
  const add = (id, options, columns, where, home) => {
    const told = drawn.plots[id] = { series: 0, points: 0, inked: false };
    options.hooks = options.hooks || {};
    const before = options.hooks.draw || [];
    options.hooks.draw = before.concat(u => {
      if (!told.cells) {
        const shown = u.series.filter((s, i) => i > 0 && s.show);
        told.series = shown.length;
        told.points = u.data.slice(1).reduce((sum, ys) => sum + ys.filter(y => y != null).length, 0);
      }
      // Whether its axes have scales: how many labels the one with the fewest has.
      told.labels = Math.min(...u.axes.map(axis => (axis._values || []).filter(text => text != null && text !== "").length));
      if (location.hash === "#check") told.inked = inked(u);
    });
    const u = new uPlot(Object.assign({ width: where.width(), height: 260, padding: [10, 16, 0, 0],
      legend: parts.legend() }, options), columns, where.body);
    plots.push({ u, where, home });
    if (home) {
      const [min, max] = view.zoom || home;
      u.setScale("x", { min, max });
    }
    return u;
  };
  // Whether anything but the ground and the grid is in the plot's area: a colour with a hue.
  const inked = u => {
    const box = u.bbox;
    const pixels = u.ctx.getImageData(box.left, box.top, box.width, box.height).data;
    for (let at = 0; at < pixels.length; at += 4) {
      const [r, g, b, a] = pixels.subarray(at, at + 4);
      if (a > 200 && Math.max(r, g, b) - Math.min(r, g, b) > 40) return true;
    }
    return false;
  };

  // Series of lines: each its own colour while there are enough of them, runs told apart by dashes.
  const look = of => {
    const several = data.runs.length > 1;
    return { stroke: () => colour(of.origin, of.hue),
             dash: dashes[(several ? of.run + Math.floor(of.hue / hues) : Math.floor(of.hue / hues)) % dashes.length], width: 1.6 };
  };
  const lineSeries = (lines, names, value) => lines.map(line => Object.assign({
    label: names[line.series].label, points: { show: line.x.length < 2, size: 5 }, spanGaps: true,
    show: !view.hidden.has(names[line.series].label), value: (u, v) => (v == null ? "–" : value(v)),
  }, look(names[line.series])));
  const joined = lines => uPlot.join(lines.map(line => [line.x, line.y]));
  const remember = (u, index) => {
    const s = index != null && u.series[index];
    if (s) view.hidden[s.show ? "delete" : "add"](s.label);
  };

  const overTime = (parent, id, title, label, lines, names, value, scale) => {
    if (!lines || !lines.length) return;
    add(id, {
      scales: { x: { time: false }, y: scale },
      axes: [timeAxis(), left(label, value, scale.distr ? { splits: tens } : {})],
      series: [{ label: "time", value: (u, v) => clock(v) }].concat(lineSeries(lines, names, value)),
      cursor: timeCursor(), hooks: { setSelect: [timeZoom], setSeries: [remember] },
    }, joined(lines), frame(parent, id, title), [0, data.end]);
  };

  // Counts by column of time and class: what is chosen of reads and writes, added up.
  const chosen = map => {
    const sides = view.side === "both" ? [map.read, map.write] : [map[view.side]];
    const cells = new Map();
    for (const side of sides) for (let at = 0; at < side.cells.length; at += 3) {
      const key = side.cells[at] * 128 + side.cells[at + 1];
      cells.set(key, (cells.get(key) || 0) + side.cells[at + 2]);
    }
    const { from, column } = sides.find(side => side.cells.length) || sides[0];
    return { cells, from, column, scale: map.scales[view.side] };
  };
  const ramp = share => {
    const stops = ramps[theme()], at = Math.min(share, 0.9999) * (stops.length - 1), low = Math.floor(at);
    return "rgb(" + stops[low].map((v, i) => Math.round(v + (stops[low + 1][i] - v) * (at - low))).join(" ") + ")";
  };
  // From one I/O in a cell to the most: where a count is on the scale, by its logarithm, and its colour.
  const shade = (count, most) => ramp(0.12 + 0.88 * Math.log1p(count) / Math.log1p(most));
  const along = (count, most) => (most > 1 ? (Math.log1p(count) - Math.LN2) / (Math.log1p(most) - Math.LN2) : 0);
  const scaleBar = (where, { most, ticks }, unit) => {
    const stops = Array.from({ length: 17 }, (_, i) => Math.expm1(Math.LN2 + i / 16 * (Math.log1p(most) - Math.LN2)));
    const colours = element("div", { className: "colours" });
    colours.style.background = "linear-gradient(to right, " + stops.map(count => shade(count, most)).join(", ") + ")";
    const numbers = element("div", { className: "ticks" });
    for (const count of ticks) {
      const tick = element("span", { textContent: count.toLocaleString("en-US").replaceAll(",", "\u202f") });
      tick.style.left = (along(count, most) * 100).toFixed(2) + "%";
      numbers.append(tick);
    }
    where.body.append(element("div", { className: "scale" }, element("div", { className: "strip" }, colours, numbers),
                              element("span", { className: "unit", textContent: unit })));
  };
  const heatMap = (parent, id, title, map, edges, scale, y, unit) => {
    const { cells, from, column, scale: { most, ticks } } = chosen(map);
    if (!cells.size) return;
    const classes = [...cells.keys()].map(key => key % 128);
    const low = Math.min(...classes), high = Math.max(...classes);
    // Jobs that took turns would each fill a small part of their map.
    const last = from + (1 + Math.max(...[...cells.keys()].map(key => Math.floor(key / 128)))) * column;
    const home = last - from < data.end * 0.6 ? [from, last] : [0, data.end];
    const where = frame(parent, id, title);
    const paint = u => {
      const told = drawn.plots[id];
      told.cells = 0;
      u.ctx.save();
      u.ctx.beginPath();
      u.ctx.rect(u.bbox.left, u.bbox.top, u.bbox.width, u.bbox.height);
      u.ctx.clip();
      for (const [key, count] of cells) {
        const begin = from + Math.floor(key / 128) * column, [bottom, top] = edges(key % 128);
        const x0 = Math.floor(u.valToPos(begin, "x", true)), x1 = Math.ceil(u.valToPos(begin + column, "x", true));
        if (x1 < u.bbox.left || x0 > u.bbox.left + u.bbox.width) continue;
        const y0 = Math.floor(u.valToPos(top, "y", true)), y1 = Math.ceil(u.valToPos(bottom, "y", true));
        u.ctx.fillStyle = shade(count, most);
        u.ctx.fillRect(x0, y0, Math.max(1, x1 - x0), Math.max(1, y1 - y0));
        told.cells++;
      }
      u.ctx.restore();
    };
    const hover = u => {
      const { left, top } = u.cursor;
      let text = "";
      if (left >= 0 && top >= 0) {
        const col = Math.floor((u.posToVal(left, "x") - from) / column), v = u.posToVal(top, "y");
        for (let k = low; k <= high; k++) {
          const [bottom, above] = edges(k);
          if (v < bottom || v >= above) continue;
          text = clock(from + col * column) + ", " + unit(bottom) + " to " + unit(above) + ": " + (cells.get(col * 128 + k) || 0) + " I/Os";
        }
      }
      where.hover.textContent = text;
    };
    const range = [edges(low)[0], edges(high)[1]];
    add(id, {
      height: 220, legend: { show: false }, scales: { x: { time: false }, y: Object.assign({}, scale, { range: () => range }) },
      axes: [timeAxis(), y], series: [{}, { paths: () => null, points: { show: false } }],
      cursor: Object.assign(timeCursor(), { points: { show: false } }),
      hooks: { draw: [paint], setCursor: [hover], setSelect: [timeZoom] },
    }, [[0, data.end], range], where, home);
    scaleBar(where, { most, ticks }, map.scales.unit);
  };
  const heat = (parent, map, index) => heatMap(parent, "heat-" + index, map.label, map, k => [2 ** (k / 2), 2 ** ((k + 1) / 2)],
    { distr: 3 }, left("response", latency, { splits: tens, grid: { show: false } }), latency);
  const places = (parent, map, index) => {
    const [begin, end] = map.span, part = (end - begin) / 128;
    if (part <= 0) return;
    // Ticks at round binary sizes, where 1 TB is not 0.91 of anything.
    const steps = Array.from({ length: 60 }, (_, power) => 2 ** power);
    heatMap(parent, "places-" + index, map.label, map, k => [begin + k * part, begin + (k + 1) * part],
      {}, left("address", bytes, { incrs: steps, size: 72, grid: { show: false } }), bytes);
  };

  const percentiles = parent => {
    const lines = data.percentiles[view.latency];
    if (!lines.length) return;
    const end = Math.max(...lines.map(line => line.x[line.x.length - 1]));
    add("percentiles", {
      height: 320, scales: { x: { time: false, range: (u, low, high) => [low, Math.max(high, low + 0.1)] }, y: logScale() },
      axes: [bottom("share of the I/Os", nines, { splits: () => [0.30103].concat(Array.from({ length: Math.floor(end) }, (_, i) => i + 1)) }),
             left("latency", latency, { splits: tens })],
      series: [{ label: "share", value: (u, v) => (v == null ? "–" : nines(v)) }].concat(lineSeries(lines, view.latency === 3 ? data.tiers : data.series, latency)),
      hooks: { setSeries: [remember] },
    }, joined(lines), frame(parent, "percentiles", "Percentiles of latency, by nines; the last point is the longest"));
  };

  // Jobs as points, joined in the order of their depths where a run has several.
  const loads = parent => {
    const points = data.loads.filter(load => load.response[view.load] > 0 && load.iops > 0);
    const mixed = new Set(points.map(load => load.origin)).size > 1;
    if (points.length < 2) return;
    const groups = new Map();
    for (const load of points) {
      const key = (data.runs.length > 1 ? data.runs[load.run] + ": " : "") + load.kind + (mixed ? " [" + load.origin + "]" : "");
      if (!groups.has(key)) groups.set(key, []);
      groups.get(key).push(load);
    }
    const names = [...groups.keys()], where = frame(parent, "loads", "Response by IOPS, a point for each job; joined in the order of depths");
    const columns = uPlot.join([...groups.values()].map(group => {
      // Points of the same rate are one place of the axis: the later is moved by nothing that is seen.
      const sorted = [...group].sort((a, b) => a.iops - b.iops);
      sorted.forEach((load, i) => { load.x = i && load.iops <= sorted[i - 1].x ? sorted[i - 1].x * (1 + 1e-9) : load.iops; });
      return [sorted.map(load => load.x), sorted.map(load => load.response[view.load])];
    }));
    const origins = [...groups.values()].map(group => group[0].origin);
    const groupColour = index => colour(origins[index], origins.slice(0, index).filter(origin => origin === origins[index]).length);
    let taken = [];
    const paint = u => names.forEach((key, index) => {
      if (!index) taken = [];
      if (!u.series[index + 1].show) return;
      const group = [...groups.get(key)].sort((a, b) => a.depth - b.depth);
      const at = load => [u.valToPos(load.x, "x", true), u.valToPos(load.response[view.load], "y", true)];
      const ratio = uPlot.pxRatio;
      u.ctx.save();
      u.ctx.strokeStyle = u.ctx.fillStyle = groupColour(index);
      u.ctx.lineWidth = ratio;
      u.ctx.setLineDash((dashes[index % dashes.length] || []).map(d => d * ratio));
      if (new Set(group.map(load => load.depth)).size > 2) {
        u.ctx.beginPath();
        group.forEach((load, i) => u.ctx[i ? "lineTo" : "moveTo"](...at(load)));
        u.ctx.stroke();
      }
      u.ctx.fillStyle = css("--text");
      u.ctx.font = 11 * ratio + "px " + getComputedStyle(document.body).fontFamily;
      u.ctx.textAlign = "left";
      u.ctx.textBaseline = "alphabetic";
      for (const load of group) {
        const [x, y] = at(load), text = load.label + ", depth " + load.depth, wide = u.ctx.measureText(text).width;
        const right = x + wide + 12 * ratio > u.bbox.left + u.bbox.width;
        const box = [x + (right ? -7 * ratio - wide : 7 * ratio), y - 17 * ratio, wide, 13 * ratio];
        // Where labels would lie on each other, one is left out.
        if (taken.some(t => box[0] < t[0] + t[2] && t[0] < box[0] + box[2] && box[1] < t[1] + t[3] && t[1] < box[1] + box[3])) continue;
        taken.push(box);
        u.ctx.fillText(text, box[0], y - 6 * ratio);
      }
      u.ctx.restore();
    });
    const grow = (u, low, high) => (low == null ? [1, 10] : [low / 1.3, high * 1.3]);
    add("loads", {
      height: 320, scales: { x: { time: false, range: (u, low, high) => [0, high * 1.08] }, y: { distr: 3, range: grow } },
      axes: [bottom("IOPS", rate), left("response", latency, { splits: tens })],
      series: [{ label: "IOPS", value: (u, v) => rate(v) }].concat(names.map((label, index) => ({
        label, stroke: () => groupColour(index), paths: () => null, value: (u, v) => (v == null ? "–" : latency(v)),
        points: { show: true, size: 9, fill: () => groupColour(index) },
      }))),
      hooks: { draw: [paint] },
    }, columns, where);
  };

  // Shares of the time by depth, as bars side by side.
  const depths = parent => {
    const all = [...new Set(data.depths.flatMap(job => job.shares.map(share => share[0])))].sort((a, b) => a - b);
    if (all.length < 2 && data.depths.every(job => job.shares.length < 2) || !all.length) return;
    const x = all.map((_, i) => i);
    const columns = [x].concat(data.depths.map(job => all.map(depth => (job.shares.find(share => share[0] === depth) || [0, null])[1])));
    const paint = u => {
      const count = data.depths.length, wide = 0.8 / count;
      data.depths.forEach((job, index) => {
        if (!u.series[index + 1].show) return;
        u.ctx.fillStyle = colour(job.origin, job.hue);
        columns[index + 1].forEach((share, i) => {
          if (share == null) return;
          const x0 = u.valToPos(i - 0.4 + index * wide, "x", true), x1 = u.valToPos(i - 0.4 + (index + 1) * wide, "x", true);
          const y0 = u.valToPos(share, "y", true), y1 = u.valToPos(0, "y", true);
          u.ctx.fillRect(x0 + 1, y0, Math.max(1, x1 - x0 - 2), y1 - y0);
        });
      });
    };
    const label = i => (all[i] == null ? "" : all[i] < 2 ? String(all[i]) : all[i] + "+");
    add("depths", {
      scales: { x: { time: false, range: () => [-0.6, all.length - 0.4] }, y: fromZero() },
      axes: [bottom("I/Os in flight", label, { splits: () => x }), left("share of the time", percent)],
      series: [{ label: "in flight", value: (u, v) => (v == null ? "–" : label(v)) }].concat(data.depths.map(job => ({
        label: job.label, stroke: () => colour(job.origin, job.hue), paths: () => null, points: { show: false }, value: (u, v) => percent(v) }))),
      cursor: { drag: { x: false, y: false }, points: { show: false } }, hooks: { draw: [paint] },
    }, columns, frame(parent, "depths", "Depth: share of the time with so many I/Os in flight"));
  };

  // A test's own plot: lines through points, and bands where something lies that is known with an interval.
  const figure = (parent, own) => {
    const units = { count: rate, nanoseconds: latency, percent }, [x, y] = [own.x, own.y];
    const across = x.log ? { time: false, distr: 3, range: (u, low, high) => [low / 1.15, high * 1.15] }
      : { time: false, range: (u, low, high) => [0, high > 0 ? high * 1.06 : 1] };
    // Points of one place across would be one: the later is moved by nothing that is seen.
    const columns = uPlot.join(own.lines.map(line => {
      const points = line.points.map(([a, b]) => [a, b]).sort((p, q) => p[0] - q[0]);
      points.forEach((point, i) => { if (i && point[0] <= points[i - 1][0]) point[0] = points[i - 1][0] * (1 + 1e-9) + 1e-12; });
      return [points.map(point => point[0]), points.map(point => point[1])];
    }));
    const paint = u => own.marks.forEach(mark => {
      const at = v => u.valToPos(v, "x", true), { top, height } = u.bbox, ratio = uPlot.pxRatio;
      const [low, high] = [at(mark.low), at(mark.high)];
      u.ctx.save();
      u.ctx.fillStyle = u.ctx.strokeStyle = colour(data.own_origin, 1);
      u.ctx.globalAlpha = 0.25;
      u.ctx.fillRect(low, top, Math.max(ratio, high - low), height);
      u.ctx.globalAlpha = 1;
      u.ctx.lineWidth = 1.5 * ratio;
      u.ctx.beginPath();
      u.ctx.moveTo(at(mark.at), top);
      u.ctx.lineTo(at(mark.at), top + height);
      u.ctx.stroke();
      u.ctx.font = 12 * ratio + "px " + getComputedStyle(document.body).fontFamily;
      u.ctx.textAlign = "right";
      u.ctx.fillText(mark.label, at(mark.at) - 5 * ratio, top + 14 * ratio);
      u.ctx.restore();
    });
    add("own-" + own.id, {
      height: 300, scales: { x: across, y: y.log ? logScale() : fromZero() },
      axes: [bottom(x.label, units[x.unit], x.log ? { splits: tens } : {}), left(y.label, units[y.unit], y.log ? { splits: tens } : {})],
      series: [{ label: x.label, value: (u, v) => (v == null ? "–" : units[x.unit](v)) }].concat(own.lines.map((line, i) => ({
        label: line.label, stroke: () => colour(data.own_origin, i), dash: dashes[Math.floor(i / hues) % dashes.length], width: 1.6, spanGaps: true, points: { show: true, size: 6 },
        value: (u, v) => (v == null ? "–" : units[y.unit](v)) }))),
      hooks: { draw: [paint] },
    }, columns, frame(parent, "own-" + own.id, own.title));
  };

  // Buttons of which one is pressed.
  const choice = (label, options, key) => {
    const node = element("span", { className: "choice" }, element("span", { textContent: label }));
    options.forEach(([text, value]) => {
      const button = element("button", { type: "button", textContent: text });
      button.setAttribute("aria-pressed", String(view[key] === value));
      button.addEventListener("click", () => { view[key] = value; render(); });
      node.append(button);
    });
    return node;
  };
  const section = (title, root) => {
    const node = element("section", {}, element("h2", { textContent: title }));
    document.getElementById(root || "plots").append(node);
    return node;
  };

  const timeSection = () => {
    const lines = data.windows.length && (data.iops[0].length || data.fast[0].length);
    if (!lines && !data.heat.length && !data.places.length) return;
    const node = section("Over time");
    const bar = element("div", { className: "bar" });
    if (data.windows.length > 1) bar.append(choice("moving mean of", data.windows.map((w, i) => [w.label, i]), "window"));
    const reset = element("button", { type: "button", textContent: "whole time" });
    reset.addEventListener("click", () => zoomTo(null));
    bar.append(element("span", { className: "choice" }, element("span", { textContent: "drag to zoom, double click for" }), reset));
    node.append(bar);
    overTime(node, "bandwidth", "Throughput", "MB/s", (data.bandwidth[view.window] || []).map(line =>
      Object.assign({}, line, { y: line.y.map(v => v / 1e6) })), data.series, v => trim(v), fromZero());
    overTime(node, "iops", "I/Os per second", "IOPS", data.iops[view.window], data.series, rate, fromZero());
    overTime(node, "longest", "Longest response of each interval", "response", data.longest, data.series, latency, logScale());
    overTime(node, "fast", "Share of the bytes that the fast tier served", "share", data.fast[view.window], data.jobs, percent,
             { range: () => [0, 102] });
    const sides = choice("count", [["reads and writes", "both"], ["reads", "read"], ["writes", "write"]], "side");
    if (data.heat.length || data.places.length) node.append(element("div", { className: "bar loose" }, sides));
    [[data.heat, heat, "Responses over time"], [data.places, places, "Addresses over time"]]
      .forEach(([maps, draw, title]) => {
        if (!maps.length) return;
        node.append(element("h2", { textContent: title }));
        const grid = element("div", { className: maps.length > 1 ? "pair" : "" });
        node.append(grid);
        maps.forEach((map, index) => draw(grid, map, index));
      });
  };
  // The speed of each file, or part, by what lies before its end: the fill level where the target was filled.
  const filesSection = () => {
    if (!data.files.length) return;
    add("files", {
      height: 320, scales: { x: { time: false }, y: fromZero() },
      axes: [bottom("GB from the beginning", v => trim(v)), left("MB/s", v => trim(v))],
      series: [{ label: "up to GB", value: (u, v) => (v == null ? "–" : trim(v)) }].concat(lineSeries(data.files, data.jobs, v => trim(v))),
      hooks: { setSeries: [remember] },
    }, joined(data.files), frame(section("By place"), "files", "Speed of each file, or part, by how much lies before its end"));
  };
  const latencySection = () => {
    if (!data.percentiles.some(lines => lines.length) && data.loads.length < 2) return;
    const node = section("Latency");
    const kinds = ["response", "service time", "hand-over", "service time by tier"].map((text, i) => [text, i]).filter(([, i]) => data.percentiles[i].length);
    if (kinds.length && !kinds.some(([, i]) => i === view.latency)) view.latency = kinds[0][1];
    if (kinds.length > 1) node.append(element("div", { className: "bar loose" }, choice("of", kinds, "latency")));
    percentiles(node);
    if (data.loads.length > 1)
      node.append(element("div", { className: "bar loose" }, choice("response", [["mean", 0], ["p50", 1], ["p99", 2], ["p99.9", 3]], "load")));
    loads(node);
  };

  const render = () => {
    const scroll = window.scrollY;
    plots.forEach(plot => plot.u.destroy());
    plots = [];
    drawn.plots = {};
    const roots = ["own", "plots"].map(id => document.getElementById(id));
    // The heights stay, so that the page does not jump.
    roots.forEach(root => { root.style.minHeight = root.offsetHeight + "px"; root.replaceChildren(); });
    if (data.figures.length) { const node = section(data.own, "own"); data.figures.forEach(own => figure(node, own)); }
    filesSection();
    timeSection();
    latencySection();
    if (data.depths.length) { const node = section("Depth"); depths(node); if (!node.querySelector(".plot")) node.remove(); }
    roots.forEach(root => { root.style.minHeight = ""; });
    window.scrollTo(0, scroll);
    setTimeout(tell, 50);
  };

  const button = document.getElementById("theme");
  const setTheme = dark => {
    view.dark = dark;
    parts.themed(dark);
    render();
  };
  button.addEventListener("click", () => setTheme(!view.dark));
  const system = window.matchMedia("(prefers-color-scheme: dark)");
  system.addEventListener("change", event => setTheme(event.matches));
  let resized;
  window.addEventListener("resize", () => {
    clearTimeout(resized);
    resized = setTimeout(() => plots.forEach(plot => plot.u.setSize({ width: plot.where.width(), height: plot.u.height })), 100);
  });
  // Paper is white.
  let wasDark = false;
  window.addEventListener("beforeprint", () => { wasDark = view.dark; view.print = true; setTheme(false); });
  window.addEventListener("afterprint", () => { view.print = false; setTheme(wasDark); });
  setTheme(location.hash.includes("dark") || system.matches);
})();
