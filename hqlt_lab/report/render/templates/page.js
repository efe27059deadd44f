"use strict";
const multiplier = { k: 1e3, M: 1e6, B: 1e9, G: 1e9, T: 1e12, P: 1e15 };
const value = (row, column) => {
  const text = row.cells[column].textContent.trim();
  // 1.5B is a count, 512 B and 1.5 GB are bytes
  const match = text.match(/^([-+]?[\d.]+(?:e[-+]?\d+)?)(?:([kMBT])| ([kMGTP])B)?/);
  return match ? parseFloat(match[1]) * (multiplier[match[2] || match[3]] || 1) : text;
};
const compare = (a, b) => {
  if ((a === "") !== (b === "")) return a === "" ? 1 : -1;
  return typeof a === "number" && typeof b === "number" ? a - b : String(a).localeCompare(String(b));
};
for (const table of document.querySelectorAll("table.sortable")) {
  const headers = [...table.tHead.rows[0].cells];
  headers.forEach((header, column) => {
    const button = document.createElement("button");
    button.append(...header.childNodes);
    header.append(button);
    button.addEventListener("click", () => {
      const descending = header.getAttribute("aria-sort") === "ascending";
      headers.forEach((other) => other.removeAttribute("aria-sort"));
      header.setAttribute("aria-sort", descending ? "descending" : "ascending");
      const rows = [...table.tBodies[0].rows];
      rows.sort((a, b) => (descending ? -1 : 1) * compare(value(a, column), value(b, column)));
      table.tBodies[0].append(...rows);
    });
  });
}
