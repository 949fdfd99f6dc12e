/**
 * The document as the terminal's library uses it. The library writes rules into `<style>` elements and colours into `style`
 * attributes, which the page's content security policy refuses, because it allows no inline styles: here, rules become
 * style sheets of the document, and attributes properties, which the policy allows to scripts. tools/build.mjs puts this in
 * the place of `document` in the bundle of the terminal.
 */
export const styledDocument: Document = new Proxy(globalThis.document, {
  get(target, key) {
    if (key === 'createElement') return createElement;
    const value: unknown = Reflect.get(target, key, target);
    return typeof value === 'function' ? value.bind(target) : value;
  },
  set: (target, key, value) => Reflect.set(target, key, value, target),
});

function createElement(name: string): HTMLElement {
  if (name === 'style') return createSheetElement();
  const element = globalThis.document.createElement(name);
  if (name === 'span') element.setAttribute = setAttribute;
  return element;
}

function setAttribute(this: HTMLElement, name: string, value: string): void {
  if (name === 'style') this.style.cssText = value;
  else Element.prototype.setAttribute.call(this, name, value);
}

/** Creates an element whose text is a style sheet of the document until it is removed. */
function createSheetElement(): HTMLElement {
  const { document } = globalThis;
  const sheet = new CSSStyleSheet();
  document.adoptedStyleSheets.push(sheet);
  const element = document.createElement('span');
  element.hidden = true;
  Object.defineProperty(element, 'textContent', { set: (text: string) => sheet.replaceSync(text) });
  element.remove = () => {
    document.adoptedStyleSheets = document.adoptedStyleSheets.filter((one) => one !== sheet);
    Element.prototype.remove.call(element);
  };
  return element;
}
