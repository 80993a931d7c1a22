"use strict";

/** A new element with a class and text (never markup: what runs say is not ours). */
function make(tag, className = "", text = "") {
  const node = document.createElement(tag);
  if (className) node.className = className;
  if (text !== "") node.textContent = text;
  return node;
}

/* Light or dark: the system's until the button is used. */
document.getElementById("theme").addEventListener("click", () => {
  const root = document.documentElement.style;
  const dark = root.colorScheme ? root.colorScheme === "dark" : matchMedia("(prefers-color-scheme: dark)").matches;
  root.colorScheme = dark ? "light" : "dark";
});

/* Tables: a click on a heading sorts, a choice above narrows. */
function sortBy(table, column) {
  const heading = table.tHead.rows[0].cells[column];
  const sign = heading.getAttribute("aria-sort") === "ascending" ? -1 : 1;
  for (const other of table.tHead.rows[0].cells) other.removeAttribute("aria-sort");
  heading.setAttribute("aria-sort", sign > 0 ? "ascending" : "descending");
  const key = (row) => row.cells[column].dataset.value ?? row.cells[column].textContent;
  const compare = (a, b) => {
    if (a === "" || b === "") return (a === "") - (b === ""); // empty cells last, whichever way
    return sign * (isNaN(a) || isNaN(b) ? a.localeCompare(b) : a - b);
  };
  table.classList.remove("divided"); // lines between environments, in the order of the report only
  table.tBodies[0].append(...[...table.tBodies[0].rows].sort((a, b) => compare(key(a), key(b))));
}

const PHONE = matchMedia("(max-width: 40rem)"); // as in report.css

/** What hovering shows, for a screen that nothing hovers over. */
function tell(figure, cell) {
  const told = figure.querySelector(".told");
  told.hidden = !cell?.title;
  told.textContent = cell?.title ? `${cell.textContent}: ${cell.title}` : "";
}

function narrow(figure, table, filters) {
  const names = [...table.tHead.rows[0].cells].map((cell) => cell.textContent);
  const wanted = {};
  const show = () => {
    for (const row of table.rows) {
      const chosen = Object.entries(wanted);
      row.hidden = row.parentNode === table.tBodies[0] && chosen.some(([at, value]) => value && row.cells[at].textContent !== value);
      for (const [at, value] of chosen) row.cells[at].hidden = value !== "";
    }
  };
  const bar = make("div", "filters");
  for (const [name, first] of Object.entries(filters)) {
    const at = names.indexOf(name);
    const values = [...new Set([...table.tBodies[0].rows].map((row) => row.cells[at].textContent))];
    if (values.length < 2) {
      if (PHONE.matches) {
        wanted[at] = values[0];
        bar.append(make("span", "", values[0]));
      }
      continue;
    }
    const select = make("select");
    select.append(new Option(`every ${name.replace(/s$/, "")}`, ""), ...values.map((value) => new Option(value, value)));
    select.value = values.includes(first) ? first : PHONE.matches ? values[0] : "";
    wanted[at] = select.value;
    select.addEventListener("change", () => { wanted[at] = select.value; show(); });
    bar.append(select);
  }
  figure.querySelector(".scroll").before(bar);
  show();
}

for (const table of document.querySelectorAll(".sortable")) {
  [...table.tHead.rows[0].cells].forEach((cell, column) => cell.addEventListener("click", () => sortBy(table, column)));
  const figure = table.closest("figure");
  table.tBodies[0].addEventListener("click", (event) => tell(figure, event.target.closest("td")));
  if (figure.dataset.filters) narrow(figure, table, JSON.parse(figure.dataset.filters));
}

/** What a script of the page holds: JSON, compressed (r3l/report/trajectories.py). */
async function unpack(node) {
  const bytes = Uint8Array.from(atob(node.textContent), (character) => character.charCodeAt(0));
  return new Response(new Blob([bytes]).stream().pipeThrough(new DecompressionStream("gzip"))).json();
}

/* Runs: their details are unpacked when the first cell is opened. */
let details;
const filled = new Map();
function fill(cell) {
  if (!filled.has(cell)) filled.set(cell, addRuns(cell));
  return filled.get(cell);
}
async function addRuns(cell) {
  details ??= unpack(document.getElementById("run-details"));
  for (const run of (await details)[cell.id]) {
    const node = make("details", "run");
    node.id = run.id;
    const summary = make("summary", "", `seed ${run.seed} `);
    summary.append(make("span", "", `success ${run.success.toFixed(3)}`));
    if (run.viewer) {
      const link = make("a", "", "trajectories");
      link.href = "#" + new URLSearchParams({ run: run.id });
      summary.append(" ", link);
    }
    const inputs = make("p", "", "Test task set ");
    inputs.append(make("code", "", run.task_set), "; fingerprint ", make("code", "", run.fingerprint));
    node.append(summary, inputs, make("pre", "", JSON.stringify(run.manifest, null, 2)));
    cell.append(node);
  }
}
for (const cell of document.querySelectorAll("details.cell")) cell.addEventListener("toggle", () => fill(cell));

/** An address of a cell (#tier/env/model/method) or of its run (.../seedN) opens it. */
async function openRun() {
  let place;
  try { place = decodeURIComponent(location.hash.slice(1)); } catch { return; }  // such as "#%"
  const cell = document.getElementById(place) ?? document.getElementById(place.replace(/\/seed\d+$/, ""));
  if (!cell?.matches("details")) return;
  await fill(cell);
  const run = document.getElementById(place) ?? cell;  // a seed that it does not have
  cell.open = true;
  run.open = true;
  run.scrollIntoView();
}
addEventListener("hashchange", openRun);
openRun();

const NAMES = {
  base: "Attempt", reflection: "Reflection", critique: "Critique", guided_retry: "Retry as played, with the hint",
  distilled: "Retry as trained, hint taken out", refined: "Refinement, in place of its attempt",
};
const REFLECTIONS = ["reflection", "critique"];
const short = (number) => String(Number(number.toFixed(3)));

class Viewer {
  constructor(root) {
    this.root = root;
    this.runs = new Map([...document.querySelectorAll(".run-data")].map((node) => [node.dataset.id, node]));
    this.select = Object.fromEntries([...root.querySelectorAll("select")].map((node) => [node.dataset.key, node]));
    this.fill("run", [...this.runs].map(([id, node]) => [node.dataset.label, id]));
    this.select.run.value = [...this.runs.keys()].find((id) => id.includes("/r3l/")) ?? this.select.run.value;
    for (const key of Object.keys(this.select)) this.select[key].addEventListener("change", () => this.choose(key));
    addEventListener("hashchange", () => this.follow());
    addEventListener("keydown", (event) => this.key(event));
    this.follow();
  }

  fill(key, options) {
    this.select[key].replaceChildren(...options.map(([text, value]) => new Option(text, value)));
  }

  /** Show what the address says (#run=...&step=...&task=...&member=...), or an R3L run and a task that taught something. */
  follow() {
    const wanted = new URLSearchParams(location.hash.slice(1));
    if (this.runs.has(wanted.get("run"))) this.select.run.value = wanted.get("run");
    this.choose("run", wanted, false);
    if (wanted.has("run")) this.root.scrollIntoView();
  }

  /** After a change of `key`, refill the choices that depend on it and draw. */
  async choose(key, wanted = new URLSearchParams(), remember = true) {
    const pick = (name) => {
      if ([...this.select[name].options].some((option) => option.value === wanted.get(name))) this.select[name].value = wanted.get(name);
    };
    if (key === "run") {
      const id = this.select.run.value;
      const data = await unpack(this.runs.get(id));
      if (id !== this.select.run.value) return; // another one was chosen meanwhile
      this.data = data;
      this.fill("step", [...new Set(this.data.tasks.map((task) => task.step))].map((step) => [step, step]));
      pick("step");
    }
    if (key === "run" || key === "step") {
      const tasks = [...this.data.tasks.entries()].filter(([, task]) => String(task.step) === this.select.step.value);
      this.fill("task", tasks.map(([index, task]) => [`${task.task} (${task.selected_as === "first" ? "first of the step" : "taught something"})`, index]));
      this.select.task.value = (tasks.find(([, task]) => task.selected_as === "taught") ?? tasks[0])[0];
      pick("task");
    }
    this.task = this.data.tasks[Number(this.select.task.value)];
    if (key !== "member") {
      this.fill("member", this.members());
      const retries = (columns) => columns.filter((c) => c.kind === "guided_retry");
      const rescued = this.task.members.findIndex((columns) => retries(columns).some((c) => c.success && c.restart_turn > 0));
      const retried = this.task.members.findIndex((columns) => retries(columns).length);
      this.select.member.value = retried < 0 ? "all" : String(rescued < 0 ? retried : rescued);
      pick("member");
    }
    const here = "#" + new URLSearchParams(Object.entries(this.select).map(([name, node]) => [name, node.value]));
    if (remember) history.replaceState(null, "", here);
    this.root.querySelector(".here").href = here;
    this.root.querySelector(".of-run").href = "#" + this.select.run.value;
    this.draw();
  }

  members() {
    const line = (columns, index) => {
      const what = columns.map((c) => (REFLECTIONS.includes(c.kind) ? c.kind : `${c.kind.replace("_", " ")} ${short(c.reward)}`));
      return [`${index + 1}: ${what.join(", ")}`, String(index)];
    };
    return [...this.task.members.map(line), ["the whole group, reflections left out", "all"]];
  }

  key(event) {
    const step = { j: ["member", 1], k: ["member", -1], n: ["task", 1], p: ["task", -1] }[event.key];
    if (!step || event.ctrlKey || event.metaKey || event.altKey || /^(SELECT|INPUT)$/.test(event.target.tagName)) return;
    const select = this.select[step[0]];
    const next = select.selectedIndex + step[1];
    if (next < 0 || next >= select.options.length) return;
    select.selectedIndex = next;
    this.choose(step[0]);
  }

  draw() {
    const member = this.select.member.value;
    const everyone = this.task.members.flat();
    const columns = member === "all" ? everyone.filter((c) => !REFLECTIONS.includes(c.kind)) : this.task.members[Number(member)];
    const advantages = everyone.flatMap((c) => [c.advantage, ...c.turns.map((turn) => turn.advantage)]);
    const largest = Math.max(...advantages.map((a) => Math.abs(a ?? 0)), 1e-9);
    const table = make("table", member === "all" ? "compare narrow" : "compare");
    const head = table.createTHead().insertRow();
    head.append(make("th", "", "turn"), ...columns.map((column) => this.heading(column)));
    const played = columns.filter((c) => !REFLECTIONS.includes(c.kind));
    const turns = Math.max(...played.map((c) => c.turns.length), 1);
    const marks = member === "all" ? new Map() : this.marks(columns);
    const below = [...marks].filter(([turn]) => turn > 0).flatMap(([, texts]) => texts).length; // rules beside a reflection
    const body = table.createTBody();
    for (let k = 0; k < turns; k++) {
      for (const mark of marks.get(k) ?? []) this.rule(body, mark, k ? columns : played, k ? 0 : columns.length - played.length);
      const row = body.insertRow();
      row.append(make("th", "", String(k)));
      for (const column of columns) {
        if (!REFLECTIONS.includes(column.kind)) row.append(this.turn(column, k, largest));
        else if (k === 0) row.append(this.reflection(column, turns + below, largest));
      }
    }
    const frame = this.root.querySelector(".scroll");
    frame.replaceChildren(table);
    const pivot = table.querySelector(".pivot"); // the turns before it are the same everywhere; they are above
    frame.scrollTop = pivot ? pivot.offsetTop - table.tHead.offsetHeight : 0;
    const left = this.data.left_out ? ` ${this.data.left_out} more tasks of this run did not fit into this file; its ${this.data.file} has them.` : "";
    const group = this.task.group ? ` (${this.task.group})` : "";
    this.root.querySelector(".summary").textContent = `Step ${this.task.step}, task ${this.task.task}${group}.${left}`;
    document.body.dataset.shown = `${this.select.run.value} ${this.select.step.value} ${this.select.task.value} ${member}`;
  }

  /** Turn -> what to say above it: where retries start, and where credit does if elsewhere. */
  marks(columns) {
    const marks = new Map();
    const add = (turn, text) => marks.set(turn, [...new Set([...(marks.get(turn) ?? []), text])]);
    const retries = columns.filter((c) => c.kind === "guided_retry");
    for (const c of retries) add(c.restart_turn, `pivot: retry${retries.length > 1 ? " " + (c.attempt + 1) : ""} starts at turn ${c.restart_turn}`);
    for (const c of columns) {
      const learns = c.objective !== "none" && !REFLECTIONS.includes(c.kind);
      if (learns && c.trainable[0] > 0 && !retries.some((r) => r.restart_turn === c.trainable[0])) add(c.trainable[0], `credit of ${NAMES[c.kind].toLowerCase()} begins`);
    }
    return marks;
  }

  /** A rule across `columns` and `wider` more; reflections span all rows from turn 0 on, so a rule leaves them out. */
  rule(body, text, columns, wider) {
    const row = body.insertRow();
    row.className = "pivot";
    const parts = [1 + wider]; // runs of cells between reflections
    for (const column of columns) {
      if (!REFLECTIONS.includes(column.kind)) parts[parts.length - 1] += 1;
      else parts.push(0);
    }
    for (const [index, span] of parts.entries()) {
      if (!span) continue;
      const cell = row.insertCell();
      cell.colSpan = span;
      cell.textContent = index ? "" : text;
    }
  }

  heading(c) {
    const cell = make("th");
    const again = c.attempt ? ` (${c.attempt + 1})` : "";
    cell.append(make("strong", "", (NAMES[c.kind] ?? c.kind) + again + (this.select.member.value === "all" ? ` ${c.member + 1}` : "")));
    if (!REFLECTIONS.includes(c.kind)) {
      const outcome = make("span");
      outcome.append(make("b", c.success ? "success" : "failure", c.success ? "success" : "failure"), `, reward ${short(c.reward)}, ended: ${c.stop_reason}`);
      cell.append(outcome);
    }
    const sampled = c.turns.slice(REFLECTIONS.includes(c.kind) ? c.restart_turn : 0).flatMap((turn) => turn.response);
    const sum = (runs) => runs.reduce((total, run) => total + run[1], 0);
    const count = `${sum(sampled.filter((run) => run[2]))} of ${sum(sampled)} tokens`;
    const sign = c.advantage > 0 ? "+" : "";
    const learns = c.advantage || c.turns.some((turn) => turn.advantage);
    const how = c.derivation ? ` (${c.derivation})` : "";
    const policy = learns ? `A = ${sign}${c.advantage.toFixed(3)}${how}, trains ${count}` : `A = 0, nothing learnt from ${count}`;
    cell.append(make("span", "", { policy, sft: `imitated, trains ${count}` }[c.objective] ?? "explored, not trained"));
    return cell;
  }

  turn(column, k, largest) {
    const cell = make("td");
    if (k < column.turns.length) cell.append(...this.exchange(column, column.turns[k], largest));
    return cell;
  }

  reflection(column, rows, largest) {
    const cell = make("td");
    cell.rowSpan = rows;
    const note = make("div", "note");
    const parsed = make("dl", "parsed");
    for (const [key, value] of Object.entries(column.parsed ?? {})) {
      parsed.append(make("dt", "", key.replaceAll("_", " ")), make("dd", "", typeof value === "string" ? value : JSON.stringify(value)));
    }
    note.append(parsed, ...column.turns.slice(column.restart_turn).flatMap((turn) => this.exchange(column, turn, largest)));
    cell.append(note);
    return cell;
  }

  exchange(column, { prompt, response, error, advantage = column.advantage }, largest) {
    const request = make("div", "prompt");
    this.tagged(request, prompt);
    const reply = make("div", "response");
    for (const [text, , trained] of response) {
      const span = make("span", trained ? `trained ${this.sign(column, advantage)}` : "masked");
      span.style.setProperty("--size", Math.abs(advantage ?? 0) / largest);
      this.tagged(span, text);
      reply.append(span);
    }
    return [request, reply, ...(error ? [make("div", "error", error)] : [])];
  }

  sign(column, advantage) {
    if (column.objective === "sft") return "imitated";
    return advantage > 0 ? "positive" : advantage < 0 ? "negative" : "zero";
  }

  /** Text with <|special|> and <xml> tokens stepped back. */
  tagged(node, text) {
    for (const part of text.split(/(<\|[^|>]*\|>|<\/?\w+>)/)) {
      if (/^<.*>$/.test(part)) node.append(make("span", "tag", part));
      else if (part) node.append(part);
    }
  }
}

const root = document.getElementById("viewer");
if (root && "DecompressionStream" in window) new Viewer(root);
else if (root) root.querySelector(".summary").textContent = "This browser is older than 2023 and cannot unpack trajectories.";
