// For each set of inputs, all others empty: how many completions match.
() => CASES.map(values => {
  for (const one of document.querySelectorAll(".filters input, .filters select"))
    one.value = values[one.name] ?? "";
  document.querySelector("form").dispatchEvent(new Event("input"));
  const told = document.getElementById("count").textContent.split(" ")[0].replace(",", "");
  return [Number(told), document.querySelectorAll("article").length];
})
