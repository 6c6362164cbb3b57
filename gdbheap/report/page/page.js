"use strict";
(() => {
  const make = (name, text, parent) => {
    const found = document.createElement(name);
    if (text) found.textContent = text;
    if (parent) parent.append(found);
    return found;
  };
  const drawn = (name, attributes) => {
    const found = document.createElementNS("http://www.w3.org/2000/svg", name);
    for (const key in attributes) found.setAttribute(key, attributes[key]);
    return found;
  };

  // Tables: a heading sorts, numbers by their exact values; words filter.
  const valueOf = (row, place) => {
    const cell = row.cells[place];
    if (cell.dataset.v === undefined) return cell.textContent;
    return cell.dataset.v === "" ? -Infinity : Number(cell.dataset.v);
  };
  const order = (a, b) => (typeof a === "number" && typeof b === "number" ? a - b : String(a).localeCompare(String(b)));
  for (const table of document.querySelectorAll(".scroll > table")) {
    const body = table.tBodies[0], heads = [...table.tHead.rows[0].cells];
    const first = [...body.rows];
    heads.forEach((head, place) => {
      const words = head.textContent;
      head.textContent = "";
      const button = make("button", words, head);
      button.type = "button";
      button.addEventListener("click", () => {
        const numbers = head.classList.contains("n");
        const before = head.getAttribute("aria-sort");
        const up = before ? before === "descending" : !numbers;
        for (const other of heads) other.removeAttribute("aria-sort");
        head.setAttribute("aria-sort", up ? "ascending" : "descending");
        const keyed = first.map((row, number) => [valueOf(row, place), number, row]);
        keyed.sort((a, b) => (up ? order(a[0], b[0]) : order(b[0], a[0])) || a[1] - b[1]);
        body.append(...keyed.map((key) => key[2]));
      });
    });
    if (first.length < 8) continue;
    const label = make("label", "Search");
    label.className = "search";
    const input = make("input", "", label);
    input.type = "search";
    input.setAttribute("aria-label", "Search: " + table.caption.textContent);
    table.parentElement.before(label);
    input.addEventListener("input", () => {
      const wanted = input.value.toLowerCase();
      for (const row of first) row.hidden = !row.textContent.toLowerCase().includes(wanted);
    });
  }

  // Pictures: what the pointer or the arrow keys are at is said below; Enter or a click goes into it.
  const titleOf = (cell) => cell.querySelector("title").textContent.replace(/\n/g, "  ");
  const nearest = (cells, from, key) => {
    const at = from.getBoundingClientRect();
    let best = null, least = Infinity;
    for (const cell of cells) {
      if (cell === from || cell.classList.contains("gone")) continue;
      const box = cell.getBoundingClientRect();
      const across = (box.left + box.right - at.left - at.right) / 2, down = box.top - at.top;
      const apart = Math.max(box.left - at.right, at.left - box.right, 0);
      let far = Infinity;
      if (key === "ArrowRight" && Math.abs(down) < 2 && across > 0) far = across;
      if (key === "ArrowLeft" && Math.abs(down) < 2 && across < 0) far = -across;
      if (key === "ArrowDown" && down > 2) far = down * 1000 + apart * 10 + Math.abs(across) / 1000;
      if (key === "ArrowUp" && down < -2) far = -down * 1000 + apart * 10 + Math.abs(across) / 1000;
      if (far < least) [best, least] = [cell, far];
    }
    return best;
  };
  const picture = (svg, enter, leave) => {
    const said = make("output");
    svg.closest("figure").after(said);
    svg.setAttribute("tabindex", "0");
    svg.setAttribute("aria-label", svg.getAttribute("aria-label") + ". Arrow keys move, Enter goes in, Escape goes back.");
    let chosen = null;
    const choose = (cell) => {
      if (chosen) chosen.classList.remove("chosen");
      chosen = cell;
      chosen.classList.add("chosen");
      said.textContent = titleOf(cell);
    };
    const cellAt = (event) => event.target.closest(".cell");
    svg.addEventListener("pointerover", (event) => cellAt(event) && (said.textContent = titleOf(cellAt(event))));
    svg.addEventListener("click", (event) => {
      if (!cellAt(event)) return;
      choose(cellAt(event));
      enter(chosen);
    });
    svg.addEventListener("keydown", (event) => {
      const cells = [...svg.querySelectorAll(".cell")];
      if (!cells.length) return;
      if (event.key.startsWith("Arrow")) {
        const next = chosen && chosen.isConnected ? nearest(cells, chosen, event.key) : cells[0];
        if (next) choose(next);
      } else if (event.key === "Enter" && chosen) enter(chosen);
      else if (event.key === "Escape") leave();
      else return;
      event.preventDefault();
    });
  };

  // Flame graphs: a cell is made as wide as the picture, those around it give way.
  const share = (cell, name) => parseFloat(cell.dataset[name]);
  for (const svg of document.querySelectorAll("svg.flame")) {
    const cells = [...svg.querySelectorAll("svg")];
    for (const cell of cells) {
      cell.classList.add("cell");
      cell.dataset.x = parseFloat(cell.getAttribute("x"));
      cell.dataset.w = parseFloat(cell.getAttribute("width"));
    }
    const zoom = (middle) => {
      const left = share(middle, "x"), width = share(middle, "w") || 100;
      for (const cell of cells) {
        const from = Math.max(share(cell, "x"), left);
        const to = Math.min(share(cell, "x") + share(cell, "w"), left + width);
        const isThere = to - from > width * 1e-5;
        cell.classList.toggle("gone", !isThere);
        if (!isThere) continue;
        cell.setAttribute("x", (100 * (from - left)) / width + "%");
        cell.setAttribute("width", (100 * (to - from)) / width + "%");
        const wide = (svg.clientWidth * (to - from)) / width;
        let text = cell.querySelector("text");
        if (!text) cell.append((text = drawn("text", { x: 3, y: 13 })));
        text.textContent = wide < 22 ? "" : cell.querySelector("title").textContent.split("\n")[0];
      }
    };
    picture(svg, zoom, () => zoom(cells[0]));
    const label = make("label", "Search");
    label.className = "search";
    const input = make("input", "", label);
    input.type = "search";
    input.setAttribute("aria-label", "Search in the picture: " + svg.getAttribute("aria-label"));
    svg.closest("figure").before(label);
    input.addEventListener("input", () => {
      const wanted = input.value.toLowerCase();
      const matches = (cell) => cell.querySelector("title").textContent.split("\n")[0].toLowerCase().includes(wanted);
      const found = cells.filter((cell) => wanted && matches(cell));
      for (const cell of cells) cell.classList.toggle("unmatched", Boolean(wanted) && !found.includes(cell));
      const lines = found.slice(0, 3).map(titleOf);
      const more = found.length > 3 ? [`${found.length - 3} more`] : [];
      const said = svg.closest("figure").nextElementSibling;
      said.textContent = wanted ? [...lines, ...more].join("; ") || "nothing found" : "";
    });
  }

  // The map: the finest cells of a place, drawn from the runs that the page has.
  const data = document.getElementById("map-data");
  const map = document.querySelector("svg.cells");
  if (data && map) {
    const all = JSON.parse(data.textContent);
    const across = 64, side = 14, most = 64 * 48;
    const expanded = (runs) => runs.split(" ").flatMap((run) => {
      const [number, length] = run.split("*").map(Number);
      return Array(length || 1).fill(number);
    });
    const hex = (number) => "0x" + number.toString(16);
    const inside = make("figure");
    const close = () => inside.replaceChildren();
    const enter = (cell) => {
      const [start, end, kinds, types] = all.groups[cell.dataset.g];
      const first = Math.floor(cell.dataset.i / all.step);
      const count = Math.min(Math.ceil(cell.dataset.n / all.step), most);
      const [kindOf, typeOf] = [expanded(kinds), expanded(types)];
      const rows = Math.ceil(count / across);
      const svg = drawn("svg", {
        class: "cells picture", role: "img", viewBox: `0 0 ${across * side} ${rows * side}`, width: across * side,
        "aria-label": `${count} cells from ${hex(start + first * all.cell)} on`,
      });
      const byType = document.getElementById("map-by-type");
      if (byType && byType.checked) svg.classList.add("as-types");
      for (let place = 0; place < count && first + place < kindOf.length; place++) {
        const from = start + (first + place) * all.cell, kind = kindOf[first + place];
        const [colour, name] = all.types[typeOf[first + place]];
        const rect = drawn("rect", {
          class: `cell s${kind} t${colour}`, x: (place % across) * side, y: Math.floor(place / across) * side,
          width: side, height: side,
        });
        const title = drawn("title", {});
        const mostly = colour ? `, most of it ${name}` : "";
        title.textContent = `${hex(from)} to ${hex(Math.min(from + all.cell, end))}: ${all.kinds[kind]}${mostly}`;
        rect.append(title);
        svg.append(rect);
      }
      const back = make("button", "Close");
      back.type = "button";
      back.className = "own";
      back.addEventListener("click", () => { close(); map.focus(); });
      inside.nextElementSibling && inside.nextElementSibling.tagName === "OUTPUT" && inside.nextElementSibling.remove();
      inside.replaceChildren(svg, back);
      picture(svg, () => {}, () => { close(); map.focus(); });
    };
    picture(map, enter, close);
    map.closest("figure").nextElementSibling.after(inside);
  }

  addEventListener("beforeprint", () => document.querySelectorAll("details").forEach((one) => (one.open = true)));
})();
