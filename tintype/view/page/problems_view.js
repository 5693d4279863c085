// What stands in the way of an export, or what a draft decided: every problem, with its line and what to do.

function problemsView(problems, heading) {
  return element("div", { class: "scroll problems" },
    element("h2", {}, heading),
    element("ol", {}, problems.map((problem) => element("li", { class: "problem" },
      element("div", { class: "problem-head" }, element("span", { class: "badge specialization" }, problem.id)),
      element("p", { class: "fact" }, problem.fact.split("\n", 1)[0]),
      problem.fact.includes("\n") && element("pre", { class: "detail" }, problem.fact.slice(problem.fact.indexOf("\n") + 1)),
      lineOf(problem),
      problem.remedy && element("p", { class: "remedy" }, element("strong", {}, "What to do: "), problem.remedy),
      problem.explanation && element("details", {}, element("summary", {}, "What this means"), pageText(problem.explanation))))));
}

// The page of an error, which is written in a little Markdown: headings, code and paragraphs.
function pageText(text) {
  const parts = [];
  for (const [position, block] of text.split(/^```\w*$/m).entries()) {
    if (position % 2 === 1) parts.push(element("pre", {}, block.trim()));
    else for (const paragraph of block.split(/\n\s*\n/)) if (paragraph.trim()) parts.push(paragraphOf(paragraph.trim()));
  }
  return element("div", { class: "explanation" }, parts);
}

function paragraphOf(text) {
  const heading = text.match(/^#+ (.*)/);
  const pieces = (heading ? heading[1] : text).split(/(`[^`]+`)/).map((piece) => (/^`.*`$/.test(piece) ? element("code", {}, piece.slice(1, -1)) : piece));
  return element(heading ? "h3" : "p", {}, pieces);
}
