// A list of any length: only the rows that can be seen are in the page. Rows have one height.

const ROW = 28;
const BEYOND = 12; // rows that are ready above and below

class Rows {
  // options: render(item, position) gives the row's element; onselect, onopen, onclose, label (for screen readers)
  constructor(options) {
    this.options = options;
    this.items = [];
    this.selected = -1;
    this.space = element("div", { class: "rows-space" });
    this.root = element("div", {
      class: "rows", tabindex: 0, role: "tree", "aria-label": options.label,
      onscroll: () => this.draw(),
      onkeydown: (event) => this.onKey(event),
    }, this.space);
    new ResizeObserver(() => this.draw()).observe(this.root);
  }

  setItems(items) {
    this.items = items;
    this.space.style.height = `${items.length * ROW}px`;
    if (this.selected >= items.length) this.selected = -1;
    this.draw();
  }

  get range() {
    const first = Math.max(0, Math.floor(this.root.scrollTop / ROW) - BEYOND);
    const last = Math.min(this.items.length, Math.ceil((this.root.scrollTop + this.root.clientHeight) / ROW) + BEYOND);
    return [first, last];
  }

  draw() {
    const [first, last] = this.range;
    const shown = [];
    for (let position = first; position < last; position += 1) {
      const row = this.options.render(this.items[position], position);
      row.classList.add("row");
      row.style.top = `${position * ROW}px`;
      row.setAttribute("role", "treeitem");
      row.id = `${this.options.name}-${position}`;
      if (position === this.selected) {
        row.classList.add("selected");
        row.setAttribute("aria-selected", "true");
      }
      row.addEventListener("click", () => this.select(position));
      shown.push(row);
    }
    this.space.replaceChildren(...shown);
    this.options.ondraw?.();
  }

  select(position, { quiet = false } = {}) {
    if (position < 0 || position >= this.items.length) return;
    this.selected = position;
    this.root.setAttribute("aria-activedescendant", `${this.options.name}-${position}`);
    this.reveal(position);
    this.draw();
    if (!quiet) this.options.onselect?.(this.items[position], position);
  }

  reveal(position) {
    const top = position * ROW;
    const view = this.root;
    if (top < view.scrollTop + ROW) view.scrollTop = Math.max(0, top - view.clientHeight / 3);
    else if (top + ROW > view.scrollTop + view.clientHeight - ROW) view.scrollTop = top - (view.clientHeight * 2) / 3;
  }

  onKey(event) {
    const page = Math.max(1, Math.floor(this.root.clientHeight / ROW) - 1);
    const moves = { ArrowDown: 1, ArrowUp: -1, j: 1, k: -1, PageDown: page, PageUp: -page, Home: -Infinity, End: Infinity };
    if (event.ctrlKey || event.metaKey || event.altKey) return;
    if (Object.hasOwn(moves, event.key)) {
      const wanted = this.selected < 0 ? 0 : this.selected + moves[event.key];
      this.select(Math.min(this.items.length - 1, Math.max(0, wanted)));
    } else if (event.key === "ArrowRight" && this.selected >= 0) this.options.onopen?.(this.items[this.selected], this.selected);
    else if (event.key === "ArrowLeft" && this.selected >= 0) this.options.onclose?.(this.items[this.selected], this.selected);
    else if (event.key === "Enter" && this.selected >= 0) this.options.onenter?.(this.items[this.selected], this.selected);
    else return;
    event.preventDefault();
  }
}
