// Draws the page from /api: a history once, then what the stream of events brings each second. Text from the server
// enters the page as text only. A server that goes away is said; the stream comes back by itself when it does.
(function () {
  "use strict";

  const { element, css, bytes, flow, rate, micros, trim, ramps } = parts;
  const byId = id => document.getElementById(id);
  const percent = v => (v == null ? "–" : (v > 99 && v < 100 ? (Math.floor(v * 10) / 10).toFixed(1) : trim(+v.toPrecision(2))) + " %");
  const count = v => (v == null ? "–" : v.toLocaleString("en-US").replaceAll(",", "\u202f"));
  const when = s => (s ? new Date(s * 1000).toLocaleString("sv-SE") : "never");
  const ago = s => (s < 90 ? Math.round(s) + " s" : s < 5400 ? Math.round(s / 60) + " min" : s < 129600 ? Math.round(s / 3600) + " h" : Math.round(s / 86400) + " days");

  const view = { volume: null, span: "minutes", zoom: null, dark: false, map: "tier" };
  const seen = { fields: {}, hour: [], day: [], year: [], statuses: [], gone: false, events: [], map: null, stack: [] };
  const query = more => new URLSearchParams(Object.assign(view.volume ? { volume: view.volume } : {}, more)).toString();
  const ask = async (what, more) => {
    const response = await fetch("/api/" + what + "?" + query(more));
    const document = await response.json();
    if (!response.ok) throw new Error(document.error);
    return document;
  };
  const status = () => seen.statuses[seen.statuses.length - 1];

  // ---- Charts: columns of time and of lines, made of rows of the history.

  const spans = { minutes: { of: "hour", back: 300, step: 1 }, hour: { of: "hour", back: 3600, step: 1 },
                  day: { of: "day", back: 86400, step: 60 }, year: { of: "year", back: 31622400, step: 3600 } };
  const value = (row, name) => row[seen.fields[name]];
  const perSecond = (...names) => row => names.reduce((sum, name) => sum + value(row, name), 0) * 1000 / row[1];
  const plain = name => row => value(row, name);
  const share = (part, ...all) => row => {
    const sum = all.reduce((sum, name) => sum + value(row, name), 0);
    return sum ? value(row, part) * 100 / sum : null;
  };
  const some = name => row => value(row, name) || null;
  const chunks = name => row => value(row, name) * status().chunk_bytes * 1000 / row[1];
  const fast = { hue: "--fast" }, slow = { hue: "--slow" }, dashed = { dash: [6, 4] };
  const charts = [
    { id: "device", title: "Throughput by device", unit: flow, lines: [
      ["SSD read", perSecond("fast_read_bytes"), fast], ["SSD written", perSecond("fast_written_bytes"), fast, dashed],
      ["disk read", perSecond("slow_read_bytes"), slow], ["disk written", perSecond("slow_written_bytes"), slow, dashed]] },
    { id: "response", title: "Response times", unit: micros, log: true, lines: [
      ["read, median", some("read_p50_us"), slow], ["read, 99 %", some("read_p99_us"), slow, dashed],
      ["write, median", some("write_p50_us"), fast], ["write, 99 %", some("write_p99_us"), fast, dashed]] },
    { id: "hit", title: "Served by the SSD", unit: percent, most: 100, lines: [
      ["of reads", share("fast_served_read_bytes", "fast_served_read_bytes", "slow_served_read_bytes"), slow],
      ["of writes", share("fast_served_written_bytes", "fast_served_written_bytes", "slow_served_written_bytes"), fast]] },
    { id: "requests", title: "Requests a second", unit: rate, lines: [
      ["reads", perSecond("reads"), slow], ["writes", perSecond("writes"), fast], ["flushes", perSecond("flushes"), { hue: "--landed" }]] },
    { id: "busy", title: "Devices busy", unit: percent, most: 100, lines: [
      ["SSD", row => Math.min(100, value(row, "fast_busy_us") / row[1] / 10), fast],
      ["disk", row => Math.min(100, value(row, "slow_busy_us") / row[1] / 10), slow]] },
    { id: "moves", title: "Moves", unit: flow, lines: [
      ["up", chunks("promoted_chunks"), fast], ["down", chunks("demoted_chunks"), slow],
      ["home from the landing zone", row => value(row, "destaged_blocks") * 4096 * 1000 / row[1], { hue: "--landed" }]] },
    { id: "zone", title: "Landing zone", unit: bytes, binary: true, steady: true, lines: [
      ["in use", plain("landing_used_bytes"), { hue: "--landed" }], ["landed blocks", plain("landed_bytes"), fast, dashed]] },
    { id: "fill", title: "In use", unit: bytes, binary: true, steady: true, lines: [
      ["SSD", plain("fast_used_bytes"), fast], ["disk", plain("slow_used_bytes"), slow]] },
  ];

  // Where nothing happened, lines lie on zero (or stay, if they show how things stand); where nobody served, they end.
  const columns = (chart, now) => {
    const { of, back, step } = spans[view.span], rows = seen[of];
    const from = view.zoom ? Math.min(view.zoom[0] - step, now - back) : now - back;
    const out = [[]].concat(chart.lines.map(() => []));
    const put = (at, values) => { out[0].push(at); values.forEach((v, i) => out[i + 1].push(v)); };
    const quiet = chart.lines.map(() => (chart.log || chart.id === "hit" ? null : 0));
    let last = null;
    for (const row of rows) {
      if (row[0] < from) { last = row; continue; }
      const values = chart.lines.map(line => line[1](row));
      if (last && row[0] - last[0] > 2.5 * step) {
        const rest = row[2] ? (chart.steady ? chart.lines.map(line => line[1](last)) : quiet) : chart.lines.map(() => null);
        put(Math.max(from, last[0] + step), rest);
        put(row[0] - step, rest);
      }
      put(row[0], values);
      last = row;
    }
    // Since then nothing has happened, as far as is known.
    if (last && step === 1 && !seen.gone && now - last[0] > 3) {
      const rest = chart.steady ? chart.lines.map(line => line[1](last)) : quiet;
      put(Math.max(from, last[0] + 1), rest);
      put(now, rest);
    }
    return out;
  };

  let plots = [];
  const clock = s => {
    const d = new Date(s * 1000), two = n => String(n).padStart(2, "0");
    if (view.span === "year") return d.toLocaleDateString("sv-SE");
    return two(d.getHours()) + ":" + two(d.getMinutes()) + (view.span === "minutes" ? ":" + two(d.getSeconds()) : "");
  };
  const powers = [0, 1, 2, 3, 4].flatMap(k => [1, 2, 4, 8, 16, 32, 64, 128, 256, 512].map(n => n * 1024 ** k)).concat([2 ** 50, 2 ** 51, 2 ** 52]);
  const makeChart = chart => {
    const { node, body } = parts.frame(byId("plots"), chart.id, chart.title);
    const y = chart.log ? parts.powersOfTen(100, 10000) : parts.fromZero(chart.most, 1.08);
    const width = () => Math.max(260, node.clientWidth);
    const options = {
      width: width(), height: 190, padding: [8, 24, 0, 0],
      scales: { x: { time: false, range: () => { const now = at(); return view.zoom || [now - spans[view.span].back, now]; } }, y },
      axes: [parts.axis({ values: (u, splits) => splits.map(clock), space: 80, size: 26, incrs: [10, 30, 60, 120, 300, 600, 900, 1800, 3600, 7200, 14400, 21600, 43200, 86400, 604800, 2592000, 5184000, 7776000] }),
             parts.axis({ size: 66, space: 34, values: (u, splits) => splits.map(v => (v == null ? "" : chart.unit(v))), ...(chart.binary ? { incrs: powers } : {}),
                    ...(chart.log ? { filter: (u, splits) => splits.map(v => (Math.abs(Math.log10(v) % 1) < 1e-9 ? v : null)) } : {}) })],
      series: [{ label: "at", value: (u, v) => (v == null ? "–" : clock(v)) }].concat(chart.lines.map(([label, , hue, dash]) => Object.assign(
        { label, stroke: () => css(hue.hue), width: 1.6, points: { show: false }, spanGaps: false, value: (u, v) => chart.unit(v) }, dash || {}))),
      cursor: { sync: { key: "time" }, drag: { x: true, y: false, setScale: false } }, legend: parts.legend(),
      hooks: { setSelect: [u => {
        const { left, width } = u.select;
        if (width < 8) return;
        u.setSelect({ left: 0, top: 0, width: 0, height: 0 }, false);
        zoom([u.posToVal(left, "x"), u.posToVal(left + width, "x")]);
      }] },
    };
    body.addEventListener("dblclick", () => zoom(null));
    return { chart, width, u: new uPlot(options, columns(chart, at()), body) };
  };
  const at = () => (status() && !seen.gone ? Math.floor(status().unix_ms / 1000) : Math.floor(Date.now() / 1000));
  const redraw = () => {
    plots.forEach(({ u }) => u.destroy());
    byId("plots").replaceChildren();
    plots = status() ? charts.map(makeChart) : [];
  };
  const refresh = () => {
    const now = at();
    for (const { chart, u } of plots) u.setData(columns(chart, now));
  };

  // A stretch of time that was marked in one chart is shown in all of them, until somebody wants to see what is now.
  const zoom = stretch => {
    view.zoom = stretch;
    byId("live").hidden = !stretch;
    refresh();
  };

  // ---- The answer first.

  const span = () => {
    const last = status(), floor = last.unix_ms - 300000;
    const first = seen.statuses.find(s => s.unix_ms >= floor && s.generation === last.generation) || last;
    return { first, last, seconds: (last.unix_ms - first.unix_ms) / 1000 };
  };
  const sum = (row, names) => names.reduce((sum, name) => sum + value(row, name), 0);
  // What the last five minutes had, by the history; the page may have been opened a moment ago.
  const lately = names => {
    const from = at() - 300;
    return seen.hour.reduce((all, row) => (row[0] >= from ? all + sum(row, names) : all), 0);
  };
  const hits = way => {
    const got = lately(["fast_served_" + way + "_bytes"]), all = got + lately(["slow_served_" + way + "_bytes"]);
    return all ? got * 100 / all : null;
  };
  const sentence = s => {
    const name = s.volume, silent = s.tiers.find(t => t.silent_since_unix_s && s.unix_ms / 1000 - t.silent_since_unix_s > 3);
    if (seen.gone) return "The server of " + name + " does not answer. These are the last figures; the page goes on when it is back.";
    if (s.loss) return "The " + s.loss.missing + " device of " + name + " is missing: " + bytes(s.loss.lost_bytes) + " cannot be read, and nothing is written.";
    if (s.state === "read-only") return name + " takes no more writes until it is opened again; the events say why.";
    if (s.state === "stopping") return name + " is being closed.";
    if (silent) return "The " + silent.name + " device of " + name + " has answered nothing for " + ago(s.unix_ms / 1000 - silent.silent_since_unix_s) + ".";
    if (s.landing.short) return name + " is open, but its landing zone is short: writes are as slow as the disk that empties it.";
    const lost = s.scrub.lost.length + s.scrub.unlisted_bytes > 0;
    if (lost) return name + " is open, and a scrub has found blocks of it lost; `bimetal scrub " + name + " --status` lists them.";
    const read = hits("read"), written = hits("written");
    if (read != null) return name + " is well: of what was read in the last 5 minutes, " + percent(read) + " came from the SSD.";
    if (written != null) return name + " is well: of what was written in the last 5 minutes, the SSD took " + percent(written) + ".";
    return name + " is well, and nobody has asked it for anything in the last 5 minutes.";
  };
  const card = (label, text, more, part) => {
    const node = element("div", { className: "card" }, element("div", { className: "label", textContent: label }),
      element("div", { className: "value", textContent: text }), element("div", { className: "more", textContent: more }));
    if (part != null) {
      const fill = element("div");
      fill.style.width = Math.max(0, Math.min(100, part)) + "%";
      node.append(element("div", { className: "meter" }, fill));
    }
    return node;
  };
  const kinds = r => [r.reads, r.writes];
  const answer = () => {
    const s = status();
    byId("name").textContent = s.volume;
    document.title = s.volume + " · Bimetal";
    byId("state").textContent = seen.gone ? "no answer" : s.state;
    byId("state").className = "state " + (seen.gone || s.state !== "open" ? "bad" : "open");
    document.body.classList.toggle("gone", seen.gone);
    const said = sentence(s);
    if (byId("sentence").textContent !== said) byId("sentence").textContent = said;
    const read = hits("read"), ever = s.tiers[0].read_share * 100, anything = s.tiers.some(tier => tier.read_bytes > 0);
    const before = seen.statuses[seen.statuses.length - 2], live = before && before.generation === s.generation && !seen.gone;
    const over = live ? (s.unix_ms - before.unix_ms) / 1000 : 0;
    const of = what => (over > 0 ? kinds(s.requests).reduce((all, k, i) => all + k[what] - kinds(before.requests)[i][what], 0) / over : null);
    const { first, last, seconds } = span();
    const answered = kinds(last.requests).reduce((all, k, i) => all + k.count - kinds(first.requests)[i].count, 0);
    const took = kinds(last.requests).reduce((all, k, i) => all + k.response_us - kinds(first.requests)[i].response_us, 0);
    const all = kinds(last.requests).reduce((all, k) => all + k.count, 0), whole = kinds(last.requests).reduce((all, k) => all + k.response_us, 0);
    byId("three").replaceChildren(
      card("Reads from the SSD", percent(read != null ? read : anything ? ever : null), (read != null ? "in 5 min; " : "") + (anything ? percent(ever) + " since it was opened" : "nothing was read yet"), read != null ? read : anything ? ever : 0),
      card("Now", flow(of("bytes")), rate(of("count")) + " requests a second", null),
      card("Mean response", micros(answered ? took / answered : all ? whole / all : null), answered ? "in the last " + ago(Math.max(1, seconds)) : all ? "since it was opened" : "nothing was asked yet", null));
  };

  // ---- Tables.

  const row = (head, ...cells) => element("tr", {}, element("th", { textContent: head, scope: "row" }), ...cells.map(text => element("td", { textContent: text })));
  const tables = () => {
    const s = status(), before = seen.statuses[seen.statuses.length - 2];
    const live = before && before.generation === s.generation ? (s.unix_ms - before.unix_ms) / 1000 : 0;
    const per = (tier, i, name) => (live > 0 ? (tier.load[name] - before.tiers[i].load[name]) / live : null);
    const heads = ["", "device", "in use", "of", "read", "written", "reads/s", "writes/s", "busy", "in flight", "errors", "woken"];
    byId("devices").replaceChildren(element("thead", {}, element("tr", {}, ...heads.map(text => element("th", { textContent: text, scope: "col" })))),
      element("tbody", {}, ...s.tiers.map((t, i) => row(t.name, t.device, bytes(t.used_bytes), bytes(t.size_bytes), flow(per(t, i, "read_bytes")), flow(per(t, i, "written_bytes")),
        rate(per(t, i, "reads")), rate(per(t, i, "writes")), percent(live > 0 ? Math.min(100, per(t, i, "busy_us") / 1e4) : null), count(t.load.in_flight), count(t.load.errors), count(t.wakeups.clients + t.wakeups.background)))));
    const mean = k => (k.count ? micros(k.response_us / k.count) : "–");
    const facts = [
      ["State", s.state + ", opening " + s.generation], ["Size", bytes(s.size_bytes) + " in chunks of " + bytes(s.chunk_bytes)], ["Clients", count(s.clients)],
      ["Reads", count(s.requests.reads.count) + ", " + bytes(s.requests.reads.bytes) + ", mean " + mean(s.requests.reads)],
      ["Writes", count(s.requests.writes.count) + ", " + bytes(s.requests.writes.bytes) + ", mean " + mean(s.requests.writes)],
      ["Flushes", count(s.requests.flushes.count) + ", mean " + mean(s.requests.flushes)],
      ["Served by the SSD", percent(s.tiers[0].read_share * 100) + " of bytes read, " + percent(s.tiers[0].write_share * 100) + " of bytes written"],
      ["Moved up", count(s.promoted_chunks) + " chunks; " + count(s.moves.repaid_chunks) + " of " + count(s.moves.judged_chunks) + " judged have repaid it"],
      ["Moved down", count(s.demoted_chunks) + " chunks, " + count(s.shadow_demoted_chunks) + " without being copied"], ["Last moved up", when(s.last_promotion_unix_s)],
      ["Landing zone", bytes(s.landing.used_bytes) + " of " + bytes(s.landing.size_bytes) + " in use, " + bytes(s.landing.landed_bytes) + " landed" + (s.landing.short ? ", short" : "")],
      ["Copies", bytes(s.copied_bytes) + ", from which " + bytes(s.copy_read_bytes) + " was read"],
      ["Wear of the SSD", bytes(s.wear.moved_bytes) + " by moves, " + bytes(s.wear.copied_bytes) + " by copies" + (s.wear.budget ? "; " + bytes(s.wear.budget.left_bytes) + " of " + bytes(s.wear.budget.bytes_per_day) + " a day left" : "")],
      ["Read again", count(s.reads_again) + ", " + count(s.reads_from_shadows) + " of them from shadows; " + count(s.repaired_blocks) + " blocks repaired"],
      ["Scrub", s.scrub.state + (s.scrub.state === "never" ? "" : ", " + bytes(s.scrub.done_bytes) + " of " + bytes(s.scrub.of_bytes) + ", " + count(s.scrub.wrong_blocks) + " blocks wrong")],
      ["Memory", bytes(s.ram_bytes) + " of tables, " + bytes(s.buffer_bytes) + " of buffers"],
    ];
    byId("figures").replaceChildren(element("tbody", {}, ...facts.map(([head, text]) => row(head, text))));
  };

  const showEvents = () => {
    if (!seen.events.length) return;
    byId("events").replaceChildren(...seen.events.slice(-100).reverse().map(event => element("li", { className: event.level },
      element("time", { textContent: new Date(event.unix_ms).toLocaleString("sv-SE") }), element("span", { className: "kind", textContent: event.kind }), element("span", { textContent: event.message }))));
  };

  // ---- The map.

  const canvas = byId("map");
  const places = [["fast_bytes", "--fast", "on the SSD"], ["landed_bytes", "--landed", "landed on the SSD"], ["slow_bytes", "--slow", "on the disk"], ["hole_bytes", "--hole", "never written"], ["lost_bytes", "--lost", "lost"]];
  const ramp = part => {
    const stops = ramps[view.dark ? "dark" : "light"], place = Math.min(part, 0.9999) * (stops.length - 1), low = Math.floor(place);
    return "rgb(" + stops[low].map((v, i) => Math.round(v + (stops[low + 1][i] - v) * (place - low))).join(" ") + ")";
  };
  let focus = null;
  const grid = () => {
    const width = canvas.clientWidth, cells = seen.map ? seen.map.cells.length : 1;
    const columns = Math.max(8, Math.min(cells, Math.floor(width / (width < 500 ? 13 : 16))));
    return { columns, rows: Math.max(1, Math.ceil(cells / columns)), side: width / columns };
  };
  const wanted = () => { const width = canvas.clientWidth; return width < 500 ? Math.floor(width / 13) * 20 : Math.floor(width / 16) * 12; };
  const drawMap = () => {
    if (!seen.map) return;
    const { columns, rows, side } = grid(), ratio = window.devicePixelRatio || 1, pen = canvas.getContext("2d");
    canvas.style.height = rows * side + "px";
    canvas.width = canvas.clientWidth * ratio; canvas.height = rows * side * ratio;
    pen.scale(ratio, ratio);
    const hottest = Math.max(seen.map.rises_at_heat, ...seen.map.cells.map(cell => cell.hottest));
    const hues = places.map(([name, hue]) => [name, css(hue)]);
    seen.map.cells.forEach((cell, i) => {
      const x = (i % columns) * side, y = Math.floor(i / columns) * side, gap = side > 6 ? 1 : 0, size = side - gap;
      if (view.map === "heat") {
        pen.fillStyle = ramp(Math.log1p(cell.hottest) / Math.log1p(hottest || 1));
        pen.fillRect(x, y, size, size);
      } else {
        const all = places.reduce((all, [name]) => all + cell[name], 0) || 1;
        let top = y + size;
        for (const [name, hue] of hues) {
          const height = cell[name] / all * size;
          if (!height) continue;
          pen.fillStyle = hue;
          pen.fillRect(x, top - height, size, height + (height < size ? 0.3 : 0));
          top -= height;
        }
      }
      if (i === focus) {
        pen.strokeStyle = css("--text"); pen.lineWidth = 2;
        pen.strokeRect(x + 1, y + 1, size - 2, size - 2);
      }
    });
    const legend = view.map === "heat" ? [[ramp(0), "never used"], [ramp(0.5), "now and then"], [ramp(0.99), "hottest chunk in it (" + hottest + "; from " + seen.map.rises_at_heat + " on one rises)"]]
      : places.filter(([name]) => name !== "lost_bytes" || seen.map.cells.some(cell => cell[name])).map(([, hue, text]) => [css(hue), text]);
    byId("legend").replaceChildren(...legend.map(([colour, text]) => {
      const swatch = element("span", { className: "swatch" });
      swatch.style.background = colour;
      return element("li", {}, swatch, text);
    }));
    byId("out").disabled = !seen.stack.length;
    canvas.setAttribute("aria-label", "Map of " + bytes(seen.map.from) + " to " + bytes(seen.map.to) + " in " + seen.map.cells.length + " parts: "
      + places.map(([name, , text]) => bytes(seen.map.cells.reduce((all, cell) => all + cell[name], 0)) + " " + text).join(", "));
  };
  const describe = i => {
    const cell = seen.map.cells[i];
    if (!cell) return "";
    const parts = places.filter(([name]) => cell[name]).map(([name, , text]) => bytes(cell[name]) + " " + text);
    return "from " + bytes(cell.offset) + ": " + (parts.join(", ") || "nothing") + "; heat " + cell.hottest;
  };
  const showRange = i => { byId("range").textContent = seen.map && (i == null ? bytes(seen.map.from) + " to " + bytes(seen.map.to) + ", " + bytes(seen.map.cell_bytes) + " a part" : describe(i)); };
  const loadMap = async () => {
    const range = seen.stack[seen.stack.length - 1];
    try {
      seen.map = await ask("map", Object.assign({ cells: wanted() }, range || {}));
      drawMap();
      // For who wants to know how soon it is there.
      if (!performance.getEntriesByName("first map").length) performance.mark("first map");
      showRange(focus);
    } catch (error) { byId("range").textContent = error.message; }
  };
  const enter = async i => {
    const cell = seen.map && seen.map.cells[i];
    if (!cell) return;
    if (seen.map.cell_bytes > seen.map.chunk_bytes) {
      seen.stack.push({ from: cell.offset, to: Math.min(seen.map.size_bytes, cell.offset + seen.map.cell_bytes) });
      focus = null;
      return loadMap();
    }
    focus = i;
    drawMap();
    try { byId("why").textContent = (await ask("why", { offset: cell.offset })).sentences.join(" "); } catch (error) { byId("why").textContent = error.message; }
  };
  const leave = () => { if (seen.stack.pop()) { focus = null; byId("why").textContent = ""; loadMap(); } };
  const under = event => {
    const { columns, side } = grid(), box = canvas.getBoundingClientRect();
    const i = Math.floor((event.clientY - box.top) / side) * columns + Math.floor((event.clientX - box.left) / side);
    return seen.map && seen.map.cells[i] ? i : null;
  };
  canvas.addEventListener("mousemove", event => showRange(under(event)));
  canvas.addEventListener("mouseleave", () => showRange(focus));
  canvas.addEventListener("click", event => enter(under(event)));
  canvas.addEventListener("keydown", event => {
    const step = { ArrowLeft: -1, ArrowRight: 1, ArrowUp: -grid().columns, ArrowDown: grid().columns }[event.key];
    if (step && seen.map) focus = Math.max(0, Math.min(seen.map.cells.length - 1, (focus == null ? 0 : focus + step)));
    else if (event.key === "Enter") return enter(focus);
    else if (event.key === "Escape") return leave();
    else return;
    event.preventDefault();
    drawMap();
    showRange(focus);
  });
  byId("out").addEventListener("click", () => { seen.stack = []; focus = null; byId("why").textContent = ""; loadMap(); });

  // ---- What is chosen.

  const choose = (attribute, chosen) => document.querySelectorAll("button[data-" + attribute + "]").forEach(button => button.setAttribute("aria-pressed", button.dataset[attribute] === chosen));
  document.querySelectorAll("button[data-span]").forEach(button => button.addEventListener("click", async () => {
    view.span = button.dataset.span;
    choose("span", view.span);
    zoom(null);
    await loadHistory(spans[view.span].of);
    redraw();
  }));
  byId("live").addEventListener("click", () => zoom(null));
  document.querySelectorAll("button[data-map]").forEach(button => button.addEventListener("click", () => { view.map = button.dataset.map; choose("map", view.map); drawMap(); }));
  const themed = dark => {
    view.dark = dark;
    parts.themed(dark);
    redraw();
    drawMap();
  };
  byId("theme").addEventListener("click", () => { localStorage.setItem("theme", view.dark ? "light" : "dark"); themed(!view.dark); });
  let resized = null;
  window.addEventListener("resize", () => {
    clearTimeout(resized);
    resized = setTimeout(() => { plots.forEach(({ u, width }) => u.setSize({ width: width(), height: 190 })); drawMap(); }, 150);
  });

  // ---- The stream.

  const loadHistory = async of => {
    try {
      const document = await ask("history", { span: of });
      document.fields.forEach((name, i) => { seen.fields[name] = i + 3; });
      seen[of] = document.rows;
    } catch (error) { seen[of] = seen[of] || []; }
  };
  const add = rows => {
    const last = seen.hour.length ? seen.hour[seen.hour.length - 1][0] : 0;
    seen.hour.push(...rows.filter(row => row[0] > last));
    seen.hour.splice(0, Math.max(0, seen.hour.length - 3600));
  };
  let stream = null, mapped = 0;
  const follow = () => {
    if (stream) stream.close();
    stream = new EventSource("/api/events?" + query());
    let fresh = true;
    stream.addEventListener("open", () => { fresh = true; loadHistory("hour").then(() => { if (status()) refresh(); }); });
    stream.addEventListener("happened", event => {
      // A stream that begins anew tells the past again.
      if (fresh) seen.events = [];
      fresh = false;
      seen.events.push(JSON.parse(event.data));
      showEvents();
    });
    stream.addEventListener("samples", event => add(JSON.parse(event.data)));
    stream.addEventListener("status", event => {
      const first = !status();
      fresh = false;
      seen.gone = false;
      seen.statuses.push(JSON.parse(event.data));
      seen.statuses.splice(0, Math.max(0, seen.statuses.length - 310));
      if (document.hidden && !first) return;
      answer();
      tables();
      if (first) redraw(); else if (spans[view.span].step === 1) refresh();
      if (Date.now() - mapped > 10000) { mapped = Date.now(); loadMap(); }
    });
    const gone = () => { seen.gone = true; if (status()) answer(); else byId("sentence").textContent = "The server does not answer."; };
    stream.addEventListener("gone", gone);
    stream.addEventListener("error", () => {
      gone();
      // What was refused is not tried again by the browser itself.
      if (stream.readyState === EventSource.CLOSED) setTimeout(follow, 2000);
    });
  };
  const begin = async () => {
    const kept = localStorage.getItem("theme");
    themed(kept ? kept === "dark" : matchMedia("(prefers-color-scheme: dark)").matches);
    // The map of a large volume takes longest, so it is asked for first; without a name it is of the first volume.
    mapped = Date.now();
    loadMap();
    try {
      const names = await (await fetch("/api/volumes")).json();
      view.volume = names[0];
      if (names.length > 1) {
        byId("volume").hidden = false;
        byId("volume").append(...names.map(name => element("option", { textContent: name })));
        byId("volume").addEventListener("change", () => {
          view.volume = byId("volume").value;
          Object.assign(seen, { hour: [], day: [], year: [], statuses: [], events: [], map: null, stack: [] });
          mapped = 0;
          byId("events").replaceChildren();
          byId("statuslink").href = "/api/status?" + query();
          loadHistory("hour").then(follow);
        });
      }
    } catch (error) { /* The stream says that nobody answers. */ }
    await loadHistory("hour");
    follow();
  };
  begin();
})();
