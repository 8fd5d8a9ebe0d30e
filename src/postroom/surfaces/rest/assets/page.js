// Building blocks of the page. Everything is text: nothing that was fetched becomes markup.

export function make(tag, attributes = {}, ...children) {
  const element = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) {
    if (name.startsWith("on")) element.addEventListener(name.slice(2), value);
    else if (value === true) element.setAttribute(name, "");
    else if (value !== false && value != null) element.setAttribute(name, value);
  }
  element.append(...children.flat(Infinity).filter((child) => child != null));
  return element;
}

// Paragraphs and `code`: all the markup that our descriptions use.
export function prose(text) {
  return text.split(/\n\n+/).map((paragraph) => make("p", {}, inline(paragraph)));
}

export function inline(text) {
  return text.split(/(`[^`]+`)/).map((part) =>
    part.startsWith("`") && part.length > 1 ? make("code", {}, part.slice(1, -1)) : part);
}

export function copyButton(text) {
  const button = make("button", {
    class: "quiet",
    type: "button",
    onclick: async () => {
      await navigator.clipboard.writeText(text());
      button.textContent = "Copied";
      setTimeout(() => { button.textContent = "Copy"; }, 1200);
    },
  }, "Copy");
  return button;
}
