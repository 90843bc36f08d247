// Elements without a library. Texts become text nodes, so nothing that the service sends can be
// markup.

/**
 * Makes an element.
 *
 * @param {string} tag Its name, with classes after dots: `div.cell.ready`.
 * @param {object} attributes Attributes; a function is a listener, as in `onclick`.
 * @param {...(Node|string|number|null|undefined|false)} children Nodes and texts.
 */
export function h(tag, attributes = {}, ...children) {
  const [name, ...classes] = tag.split(".");
  const element = document.createElement(name);
  element.classList.add(...classes);
  setAll(element, attributes);
  element.append(...present(children));
  return element;
}

/** Makes an element of SVG. */
export function svg(name, attributes = {}, ...children) {
  const element = document.createElementNS("http://www.w3.org/2000/svg", name);
  setAll(element, attributes);
  element.append(...present(children));
  return element;
}

/** Replaces the children of an element. */
export function fill(element, ...children) {
  element.replaceChildren(...present(children));
  return element;
}

/** Sets the text of an element, if it is another one. */
export function say(element, text) {
  if (element.textContent !== String(text)) element.textContent = text;
}

/** Sets an attribute of an element, if it has another value. */
export function mark(element, name, value) {
  if (element.getAttribute(name) !== String(value)) element.setAttribute(name, value);
}

/** A list of terms and values; a value of undefined leaves its term out. */
export function facts(pairs) {
  const list = h("dl.facts");
  for (const [term, value] of pairs) {
    if (value === undefined || value === null || value === "") continue;
    list.append(h("dt", {}, term), h("dd", {}, value));
  }
  return list;
}

/** A table with a head; cells are texts or nodes. */
export function table(caption, head, rows) {
  return h(
    "div.scroll",
    { tabindex: "0", role: "region", "aria-label": caption },
    h(
      "table.plain",
      {},
      h("caption.hidden", {}, caption),
      h("thead", {}, h("tr", {}, ...head.map((each) => h("th", { scope: "col" }, each)))),
      h("tbody", {}, ...rows.map((row) => h("tr", {}, ...row.map((value) => h("td", {}, value))))),
    ),
  );
}

function present(children) {
  return children.flat().filter((each) => each !== null && each !== undefined && each !== false);
}

function setAll(element, attributes) {
  for (const [name, value] of Object.entries(attributes)) {
    if (typeof value === "function") element.addEventListener(name.slice(2), value);
    else if (value === true) element.setAttribute(name, "");
    else if (value !== false && value !== null && value !== undefined) element.setAttribute(name, value);
  }
}
