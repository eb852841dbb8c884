// What is wrong with the layout, a line each. What may be wider than the page scrolls by itself.
() => {
  document.querySelectorAll("details").forEach(one => one.open = true);
  const wrong = [], width = document.documentElement.clientWidth;
  const name = one => `${one.tagName} ${(one.textContent || "").trim().slice(0, 40)}`;
  const box = one => one.getBoundingClientRect();
  const all = (kind, of = document) => [...of.querySelectorAll(kind)];
  const within = (a, b) => a.right <= b.right + 1 && a.left >= b.left - 1
    && a.bottom <= b.bottom + 1 && a.top >= b.top - 1;
  const meet = (a, b) => Math.min(a.right, b.right) - Math.max(a.left, b.left) > 2
    && Math.min(a.bottom, b.bottom) - Math.max(a.top, b.top) > 2;
  const overlap = (one, other) =>  // line by line
    [...one.getClientRects()].some(a => [...other.getClientRects()].some(b => meet(a, b)));
  if (document.documentElement.scrollWidth > width) wrong.push("the page scrolls sideways");
  for (const one of all("body *"))
    if (!one.closest(".scroll, pre") && box(one).width)
      if (box(one).right > width + 1 || box(one).left < -1) wrong.push(`too wide: ${name(one)}`);
  const rows = all("nav, .tiles, .filters, thead tr, .label");
  const groups = rows.map(one => [...one.children]);
  for (const svg of all("svg")) {
    groups.push(all("text", svg));
    for (const text of all("text", svg)) {
      if (!within(box(text), box(svg))) wrong.push(`cut off in a figure: ${name(text)}`);
      if (Math.min(box(text).height, box(text).width) < 8 && text.textContent.length > 1)
        wrong.push(`too small: ${name(text)}`);
    }
  }
  for (const parts of groups)
    parts.forEach((one, at) => parts.slice(at + 1).forEach(other => {
      if (overlap(one, other)) wrong.push(`overlap: ${name(one)} and ${name(other)}`);
    }));
  return wrong;
}
