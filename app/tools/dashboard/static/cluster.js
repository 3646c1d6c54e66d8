// The nodes of a cluster as cells, in groups, on a canvas: used by the dashboard and by the page of a simulation.
//
// A cell is filled from below as far as the chosen resource is requested; a small one is filled the more strongly. What is added
// since "before" has another colour. From 90 % on a cell is hatched, or has a bright corner if it is small; one with a cross takes
// no pods, one with a dashed frame has pods and no Node object.

const GAPS = { large: 2, small: 1 };
const HEADER = 20;
const LARGEST = 52;
const SMALLEST = 3;
/** Below this size the share is shown by strength. */
const READABLE = 12;
const FULL = 0.9;
const BETWEEN = 12;
const NARROW_HEIGHT = 280;

/** Natural order: zone-2 before zone-10. */
const ORDER = new Intl.Collator("en", { numeric: true });

export class ClusterMap {
  /** `facts`: functions of a node: name, share, before (or null), flags, title. `chosen` is called with the selected node. */
  constructor(canvas, facts, chosen) {
    this.canvas = canvas;
    this.facts = facts;
    this.chosen = chosen;
    this.cells = [];
    this.groups = [];
    this.selected = null;
    this.hovered = null;
    this.filter = null;
    /** By the names of nodes: "comes", "goes" or "chosen", which is drawn around them. */
    this.marks = new Map();
    this.tip = document.createElement("div");
    this.tip.className = "tip";
    this.tip.hidden = true;
    canvas.after(this.tip);
    canvas.addEventListener("pointermove", (event) => this.hover(this.at(event), event));
    canvas.addEventListener("pointerleave", () => this.hover(null));
    canvas.addEventListener("click", (event) => {
      const cell = this.at(event);
      if (cell) this.select(cell.node, true);
    });
    canvas.addEventListener("keydown", (event) => this.key(event));
    canvas.addEventListener("blur", () => this.hover(null));
    canvas.addEventListener("focus", () => {
      if (!this.selected && this.cells.length) this.select(this.cells[0].node, false);
    });
  }

  /** Shows these nodes, grouped by `group(node)`; `describe(nodes)` is the text beside a group's name. */
  show(nodes, group, describe) {
    const byName = new Map();
    for (const node of nodes) {
      const name = group(node);
      if (!byName.has(name)) byName.set(name, []);
      byName.get(name).push(node);
    }
    this.groups = [...byName]
      .sort((a, b) => ORDER.compare(a[0], b[0]))
      .map(([name, members]) => {
        members.sort((a, b) => ORDER.compare(this.facts.name(a), this.facts.name(b)));
        return { name, members, text: describe(members) };
      });
    if (this.selected) {
      const name = this.facts.name(this.selected);
      this.selected = nodes.find((node) => this.facts.name(node) === name) || null;
    }
    this.draw();
  }

  /** The largest cells with which everything fits into the height, and in how many columns. */
  arrange(width, height) {
    const most = Math.max(1, Math.min(this.groups.length, Math.floor(width / 150)));
    let best = null;
    for (let columns = 1; columns <= most; columns += 1) {
      const inner = (width - BETWEEN * (columns - 1)) / columns;
      for (let size = LARGEST; size >= SMALLEST; size -= 1) {
        const step = size + (size > 8 ? GAPS.large : GAPS.small);
        const across = Math.max(1, Math.floor(inner / step));
        let total = 0;
        for (let at = 0; at < this.groups.length; at += columns) {
          let tallest = 0;
          for (const { members } of this.groups.slice(at, at + columns)) {
            tallest = Math.max(tallest, Math.ceil(members.length / across) * step);
          }
          total += HEADER + tallest + BETWEEN;
        }
        const fits = total <= height;
        if (fits && (!best || size > best.size)) best = { columns, inner, size, step, across, total };
        if (fits) break;
        if (size === SMALLEST && !best && columns === most) {
          best = { columns, inner, size, step, across, total };
        }
      }
    }
    return best;
  }

  draw() {
    const canvas = this.canvas;
    const width = canvas.parentElement.clientWidth;
    if (!width) return;
    const target = width < 500 ? NARROW_HEIGHT : Number(canvas.dataset.height);
    const plan = this.arrange(width, target);
    const fit = "fit" in canvas.dataset;
    const height = Math.max(fit ? 0 : target, plan ? plan.total : 0);
    const ratio = window.devicePixelRatio || 1;
    canvas.style.height = `${height}px`;
    if (canvas.width !== Math.round(width * ratio) || canvas.height !== Math.round(height * ratio)) {
      canvas.width = Math.round(width * ratio);
      canvas.height = Math.round(height * ratio);
    }
    const draw = canvas.getContext("2d");
    draw.setTransform(ratio, 0, 0, ratio, 0, 0);
    draw.clearRect(0, 0, width, height);
    this.cells = [];
    if (plan) this.drawGroups(draw, plan, this.colours());
  }

  colours() {
    const style = getComputedStyle(this.canvas);
    const named = (name) => style.getPropertyValue(name).trim();
    return {
      text: named("--text"),
      muted: named("--muted"),
      empty: named("--cell"),
      fill: named("--fill"),
      added: named("--added"),
      full: named("--full"),
      panel: named("--panel"),
      comes: named("--good"),
      goes: named("--bad"),
      chosen: named("--accent"),
      font: `12px ${style.fontFamily}`,
      strong: `600 12px ${style.fontFamily}`,
    };
  }

  drawGroups(draw, plan, colours) {
    let y = 0;
    for (let at = 0; at < this.groups.length; at += plan.columns) {
      let tallest = 0;
      this.groups.slice(at, at + plan.columns).forEach((group, column) => {
        const x = column * (plan.inner + BETWEEN);
        this.drawHeader(draw, group, x, y, plan.inner, colours);
        group.members.forEach((node, number) => {
          const left = x + (number % plan.across) * plan.step;
          const top = y + HEADER + Math.floor(number / plan.across) * plan.step;
          const cell = { node, x: left, y: top, size: plan.size, group };
          this.cells.push(cell);
          this.drawCell(draw, cell, colours);
        });
        tallest = Math.max(tallest, Math.ceil(group.members.length / plan.across) * plan.step);
      });
      y += HEADER + tallest + BETWEEN;
    }
    for (const cell of this.marks.size ? this.cells : []) {
      const mark = this.marks.get(this.facts.name(cell.node));
      if (mark) drawMark(draw, cell, mark, colours);
    }
    const marked = this.cells.find((cell) => cell.node === this.selected);
    if (marked) {
      draw.globalAlpha = 1;
      draw.lineWidth = 2;
      draw.strokeStyle = colours.text;
      draw.strokeRect(marked.x - 2, marked.y - 2, marked.size + 4, marked.size + 4);
    }
  }

  drawHeader(draw, group, x, y, width, colours) {
    draw.globalAlpha = 1;
    draw.textBaseline = "alphabetic";
    draw.font = colours.strong;
    draw.fillStyle = colours.text;
    const name = fitted(draw, group.name, width);
    draw.fillText(name, x, y + 13);
    const used = draw.measureText(name).width + 8;
    draw.font = colours.font;
    draw.fillStyle = colours.muted;
    draw.fillText(fitted(draw, group.text, width - used), x + used, y + 13);
  }

  drawCell(draw, { node, x, y, size }, colours) {
    const share = Math.min(1, this.facts.share(node));
    const before = this.facts.before ? Math.min(1, this.facts.before(node)) : share;
    const flags = this.facts.flags(node);
    const strength = this.filter && !this.filter(node) ? 0.18 : 1;
    const full = share >= FULL;
    const colour = full ? colours.full : colours.fill;
    const changed = this.facts.before && share !== before;
    draw.globalAlpha = strength;
    draw.fillStyle = colours.empty;
    draw.fillRect(x, y, size, size);
    if (size < READABLE) {
      draw.globalAlpha = strength * (share > 0 ? 0.2 + 0.8 * share : 0);
      draw.fillStyle = changed ? colours.added : colour;
      draw.fillRect(x, y, size, size);
      draw.globalAlpha = strength;
      if (full) corner(draw, x, y, size, colours.panel);
    } else {
      const old = Math.round(size * Math.min(before, share));
      const all = share > 0 ? Math.max(1, Math.round(size * share)) : 0;
      draw.fillStyle = colour;
      draw.fillRect(x, y + size - old, size, old);
      if (all > old) {
        draw.fillStyle = colours.added;
        draw.fillRect(x, y + size - all, size, all - old);
      }
      if (full) hatch(draw, x, y, size, colours.panel);
      if (changed) {
        draw.lineWidth = 1;
        draw.strokeStyle = colours.text;
        draw.strokeRect(x + 0.5, y + 0.5, size - 1, size - 1);
      }
    }
    if (flags & 1) cross(draw, x, y, size, colours.text);
    if (flags & 2) dashed(draw, x, y, size, colours.text);
  }

  at(event) {
    const box = this.canvas.getBoundingClientRect();
    const x = event.clientX - box.left;
    const y = event.clientY - box.top;
    return this.cells.find((c) => x >= c.x - 1 && x <= c.x + c.size + 1 && y >= c.y - 1 && y <= c.y + c.size + 1) || null;
  }

  hover(cell) {
    this.hovered = cell;
    this.canvas.style.cursor = cell ? "pointer" : "default";
    this.tell(cell);
  }

  /** A text beside a cell. */
  tell(cell) {
    this.tip.hidden = !cell;
    if (!cell) return;
    this.tip.textContent = this.facts.title(cell.node);
    const width = this.canvas.clientWidth;
    const right = cell.x > width / 2;
    this.tip.style.top = `${this.canvas.offsetTop + cell.y + cell.size + 6}px`;
    this.tip.style.left = right ? "auto" : `${this.canvas.offsetLeft + cell.x}px`;
    this.tip.style.right = right ? `${Math.max(0, width - cell.x - cell.size)}px` : "auto";
  }

  select(node, open) {
    this.selected = node;
    const spoken = document.getElementById(this.canvas.getAttribute("aria-describedby"));
    if (spoken && node) spoken.textContent = this.facts.title(node);
    this.draw();
    if (open && node) this.chosen(node);
  }

  key(event) {
    const moves = { ArrowLeft: [-1, 0], ArrowRight: [1, 0], ArrowUp: [0, -1], ArrowDown: [0, 1] };
    if (event.ctrlKey || event.metaKey || event.altKey) return;
    if (event.key === "Enter" || event.key === " ") {
      if (this.selected) this.chosen(this.selected);
    } else if (moves[event.key]) {
      const next = this.beside(...moves[event.key]);
      if (next) {
        this.select(next.node, false);
        this.tell(this.cells.find((cell) => cell.node === next.node));
      }
    } else if (event.key === "Home" || event.key === "End") {
      const cell = this.cells.at(event.key === "Home" ? 0 : -1);
      if (cell) this.select(cell.node, false);
    } else {
      return;
    }
    event.preventDefault();
  }

  /** The nearest cell in a direction. */
  beside(right, down) {
    const from = this.cells.find((cell) => cell.node === this.selected);
    if (!from) return this.cells[0];
    let best = null;
    let least = Infinity;
    for (const cell of this.cells) {
      const along = right ? (cell.x - from.x) * right : (cell.y - from.y) * down;
      const aside = right ? Math.abs(cell.y - from.y) : Math.abs(cell.x - from.x);
      const far = along + 4 * aside;
      if (along > 1 && far < least) {
        best = cell;
        least = far;
      }
    }
    return best;
  }
}

function drawMark(draw, { x, y, size }, mark, colours) {
  draw.globalAlpha = 1;
  draw.lineWidth = size < READABLE ? 1 : 2;
  draw.strokeStyle = colours[mark];
  draw.strokeRect(x + 1, y + 1, size - 2, size - 2);
  if (size < READABLE) return;
  draw.font = colours.strong;
  draw.textAlign = "center";
  draw.textBaseline = "middle";
  const sign = { comes: "+", goes: "−", chosen: "?" }[mark];
  draw.fillStyle = colours.panel;
  draw.fillRect(x + size / 2 - 6, y + size / 2 - 6, 12, 12);
  draw.fillStyle = colours[mark];
  draw.fillText(sign, x + size / 2, y + size / 2);
  draw.textAlign = "start";
}

function fitted(draw, text, width) {
  if (width <= 0) return "";
  if (draw.measureText(text).width <= width) return text;
  let end = text.length;
  while (end > 0 && draw.measureText(`${text.slice(0, end)}…`).width > width) end -= 1;
  return end ? `${text.slice(0, end)}…` : "";
}

function hatch(draw, x, y, size, colour) {
  draw.save();
  draw.beginPath();
  draw.rect(x, y, size, size);
  draw.clip();
  draw.beginPath();
  for (let at = -size; at < size; at += 4) {
    draw.moveTo(x + at, y + size);
    draw.lineTo(x + at + size, y);
  }
  draw.lineWidth = 1;
  draw.globalAlpha *= 0.55;
  draw.strokeStyle = colour;
  draw.stroke();
  draw.restore();
}

function corner(draw, x, y, size, colour) {
  draw.beginPath();
  draw.moveTo(x + size, y);
  draw.lineTo(x + size, y + size / 2);
  draw.lineTo(x + size / 2, y);
  draw.fillStyle = colour;
  draw.fill();
}

function cross(draw, x, y, size, colour) {
  draw.beginPath();
  draw.moveTo(x + 1, y + 1);
  draw.lineTo(x + size - 1, y + size - 1);
  draw.moveTo(x + size - 1, y + 1);
  draw.lineTo(x + 1, y + size - 1);
  draw.lineWidth = size > 12 ? 1.5 : 1;
  draw.strokeStyle = colour;
  draw.stroke();
}

function dashed(draw, x, y, size, colour) {
  draw.save();
  draw.setLineDash([2, 2]);
  draw.lineWidth = 1;
  draw.strokeStyle = colour;
  draw.strokeRect(x + 0.5, y + 0.5, size - 1, size - 1);
  draw.restore();
}
