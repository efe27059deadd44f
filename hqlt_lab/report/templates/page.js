"use strict";
const size = { k: 1e3, M: 1e6, B: 1e9, G: 1e9, T: 1e12, P: 1e15 };
const value = (row, column) => {
  const text = row.cells[column].textContent.trim();
  // 1.5B are numbers, 512 B and 1.5 GB are bytes
  const found = text.match(/^([-+]?[\d.]+(?:e[-+]?\d+)?)(?:([kMBT])| ([kMGTP])B)?/);
  return found ? parseFloat(found[1]) * (size[found[2] || found[3]] || 1) : text;
};
const compare = (a, b) => {
  if ((a === "") !== (b === "")) return a === "" ? 1 : -1;
  return typeof a === "number" && typeof b === "number" ? a - b : String(a).localeCompare(String(b));
};
for (const table of document.querySelectorAll("table.sortable")) {
  const heads = [...table.tHead.rows[0].cells];
  heads.forEach((head, column) => {
    const button = document.createElement("button");
    button.append(...head.childNodes);
    head.append(button);
    button.addEventListener("click", () => {
      const down = head.getAttribute("aria-sort") === "ascending";
      heads.forEach((other) => other.removeAttribute("aria-sort"));
      head.setAttribute("aria-sort", down ? "descending" : "ascending");
      const rows = [...table.tBodies[0].rows];
      rows.sort((a, b) => (down ? -1 : 1) * compare(value(a, column), value(b, column)));
      table.tBodies[0].append(...rows);
    });
  });
}
