// The page: a head with tabs and the search, the view that is chosen, and the panel.

class App {
  constructor(data) {
    this.data = data;
    this.programs = data.programs.map((each, number) => new Program(each, number));
    this.current = 0;
    this.query = "";
    this.selected = null;
    this.sizes = this.programs.map((program) => program.exampleSizes());
    this.openModules = [];
    this.openGroups = [];
    this.trees = [];
    this.onlyChanges = false;
    this.root = document.getElementById("page");
    this.main = element("main", {});
    this.side = null;
    this.buildHead();
    this.panel = element("div", { class: "panel-place" });
    replaceContent(this.root, this.head, element("div", { class: "body" }, this.main, this.panel));
    document.addEventListener("keydown", (event) => this.onKey(event));
    this.show(this.programs.length > 0 ? "contract" : "problems");
  }

  get program() {
    return this.programs[this.current];
  }

  get views() {
    const decisions = this.program?.decisions.length > 0;
    return [
      ...(this.programs.length > 0 ? [["contract", "Contract"], ["modules", "Modules"], ["graph", "Graph"]] : []),
      ...(this.programs.length > 1 || this.program?.hasBackward ? [["sides", "Side by side"]] : []),
      ...(this.data.problems.length > 0 || decisions ? [["problems", this.programs.length > 0 ? "Decisions" : "Problems"]] : []),
    ];
  }

  buildHead() {
    this.tabs = element("nav", { class: "tabs", role: "tablist", "aria-label": "views" });
    this.searchBox = element("input", {
      type: "search", class: "search", placeholder: "Search: op:linear module:encoder.* dim:seq", "aria-label": "search the graph",
      spellcheck: "false", oninput: () => this.search(this.searchBox.value, { typing: true }),
      onkeydown: (event) => {
        if (event.key === "Enter") this.shown.step?.(event.shiftKey ? -1 : 1);
        else if (event.key === "Escape") this.search("");
        else if (event.key === "ArrowDown") this.shown.focus?.();
        else return;
        event.preventDefault();
        event.stopPropagation();
      },
    });
    const picker = this.programs.length > 1 && element("select", { class: "programs", "aria-label": "program", onchange: (event) => this.choose(Number(event.target.value)) },
      this.programs.map((program) => element("option", { value: program.number }, program.name)));
    this.picker = picker;
    this.stage = element("span", { class: "stage" });
    this.head = element("header", {},
      element("div", { class: "title" }, element("h1", {}, this.data.title), picker, this.stage),
      this.tabs,
      this.programs.length > 0 ? this.searchBox : element("span", { class: "spacer" }),
      button("◐", () => this.switchTheme(), { class: "theme", title: "light or dark (t)", "aria-label": "light or dark" }),
      button("?", () => this.showKeys(), { class: "theme", title: "keys", "aria-label": "keys" }));
  }

  // --- what is shown

  show(view) {
    this.view = view;
    const views = this.views;
    replaceContent(this.tabs, views.map(([name, title], position) => button([title, element("kbd", {}, position + 1)], () => this.show(name), {
      role: "tab", class: name === view ? "tab chosen" : "tab", "aria-selected": String(name === view),
    })));
    this.stage.textContent = this.program && this.program.stage !== this.program.name ? `${this.program.stage} stage` : "";
    const made = this.make(view);
    this.shown = made instanceof Node ? { root: made } : made;
    replaceContent(this.main, this.shown.root);
  }

  make(view) {
    if (view === "contract") return contractView(this, this.program);
    if (view === "modules") return modulesView(this, this.program);
    if (view === "graph") return graphView(this, this.program);
    if (view === "sides") return sidesView(this);
    if (this.programs.length > 0) return problemsView(this.program.decisions, "What the example decided in this draft");
    const count = this.data.problems.length;
    return problemsView(this.data.problems, `${count} problem${count > 1 ? "s" : ""} in the way of an export`);
  }

  choose(number) {
    this.current = number;
    if (this.picker) this.picker.value = String(number);
    if (this.selected && this.selected.program !== number) this.select(null);
    this.show(this.views.some(([name]) => name === this.view) ? this.view : "contract");
  }

  select(selected) {
    this.selected = selected;
    replaceContent(this.panel, panelOf(this, selected));
    this.root.classList.toggle("with-panel", selected !== null);
    this.shown?.redraw?.();
  }

  search(query, { typing = false } = {}) {
    this.query = query;
    if (!typing) this.searchBox.value = query;
    if (this.view !== "graph" || !typing) this.show("graph");
    else {
      this.shown = this.make("graph");
      replaceContent(this.main, this.shown.root);
    }
    if (!typing && query === "") this.shown.focus();
  }

  openNumber(program, number) {
    if (program.number !== this.current) this.choose(program.number);
    if (this.query) this.searchBox.value = this.query = "";
    this.show("graph");
    this.select({ kind: "node", program: program.number, number });
    this.shown.reveal(number);
    this.shown.focus();
  }

  openNode(program, name) {
    const node = program.byNodeName.get(name);
    if (node) this.openNumber(program, node.number);
  }

  openModule(program, number) {
    if (this.query) this.searchBox.value = this.query = "";
    this.show("graph");
    this.shown.revealModule(number);
    this.shown.focus();
  }

  // --- the sizes that were typed in

  answerOf(program) {
    return checkSizes(program.contract, this.sizes[program.number]);
  }

  symbolsOf(program) {
    const { symbols } = this.answerOf(program);
    const example = {};
    for (const symbol of program.symbols) if (symbol.example !== null) example[symbol.symbol] = BigInt(symbol.example);
    return { ...example, ...symbols };
  }

  // A size of one place; others that are the same symbol alone follow it.
  setSize(program, input, dimension, value) {
    const sizes = this.sizes[program.number];
    const symbol = program.contract.inputs[input].sizes[dimension].value;
    sizes[input][dimension] = value;
    if (typeof symbol !== "string") return;
    program.contract.inputs.forEach((other, position) => (other.sizes || []).forEach((size, place) => {
      if (size.value === symbol) sizes[position][place] = value;
    }));
  }

  // --- keys and colours

  onKey(event) {
    const typing = event.target instanceof HTMLInputElement || event.target instanceof HTMLSelectElement;
    if (event.key === "Escape" && !typing) return this.closeOrClear();
    if (typing || event.ctrlKey || event.metaKey || event.altKey) return undefined;
    const number = Number(event.key);
    if (number >= 1 && number <= this.views.length) {
      this.show(this.views[number - 1][0]);
      this.shown.focus?.();
    } else if (event.key === "/") this.searchBox.focus();
    else if (event.key === "t") this.switchTheme();
    else if (event.key === "n") this.shown.step?.(1);
    else if (event.key === "N") this.shown.step?.(-1);
    else if (event.key === "[" || event.key === "]") this.nextProgram(event.key === "]" ? 1 : -1);
    else if (event.key === "?") this.showKeys();
    else return undefined;
    event.preventDefault();
    return undefined;
  }

  nextProgram(step) {
    if (this.programs.length > 1) this.choose((this.current + step + this.programs.length) % this.programs.length);
  }

  closeOrClear() {
    if (document.querySelector("dialog")) return;
    if (this.selected) this.select(null);
    else if (this.query) this.search("");
  }

  switchTheme() {
    const root = document.documentElement;
    const dark = root.dataset.theme ? root.dataset.theme === "dark" : matchMedia("(prefers-color-scheme: dark)").matches;
    root.dataset.theme = dark ? "light" : "dark";
  }

  showKeys() {
    document.querySelector("dialog")?.remove();
    const keys = [["1 … 5", "views"], ["/", "search"], ["n, N", "next, previous result"], ["↑ ↓ or j k", "move"], ["← →", "close, open"], ["Enter", "open or close"],
      ["[ ]", "other program"], ["Esc", "close the panel, clear the search"], ["t", "light or dark"]];
    const dialog = element("dialog", { class: "keys", onclose: () => dialog.remove() }, element("h2", {}, "Keys"),
      element("table", {}, keys.map(([key, what]) => element("tr", {}, element("th", {}, element("kbd", {}, key)), element("td", {}, what)))),
      element("p", { class: "hint" }, `Search for words, or with keys: ${Object.keys(KEYS).map((key) => `${key}:`).join(" ")}; * stands for anything.`),
      element("p", { class: "hint" }, `Made by tintype ${this.data.version}.`),
      button("Close", () => dialog.close(), { class: "quiet" }));
    document.body.append(dialog);
    dialog.showModal();
  }
}

const app = new App(JSON.parse(document.getElementById("data").textContent));
globalThis.tintypePage = { app, checkSizes, evaluate, findNodes }; // for those who look at it from a console
document.documentElement.dataset.ready = "true";
