/** The HTML attributes that contain URLs, by element (apimachinery proxy atomsToAttrs). */
const URL_ATTRIBUTES: Readonly<Record<string, readonly string[]>> = {
  a: ['href'],
  area: ['href'],
  audio: ['src'],
  base: ['href'],
  blockquote: ['cite'],
  body: ['background'],
  button: ['formaction'],
  command: ['icon'],
  del: ['cite'],
  embed: ['src'],
  form: ['action'],
  frame: ['longdesc', 'src'],
  head: ['profile'],
  html: ['manifest'],
  iframe: ['longdesc', 'src'],
  img: ['longdesc', 'src', 'usemap'],
  input: ['src', 'usemap', 'formaction'],
  ins: ['cite'],
  link: ['href'],
  object: ['classid', 'codebase', 'data', 'usemap'],
  q: ['cite'],
  script: ['src'],
  source: ['src'],
  video: ['poster', 'src'],
};

/** Rewrites the URLs in the elements of an HTML text; all other bytes are unchanged. */
export function rewriteHtmlLinks(html: string, rewrite: (url: string) => string): string {
  return html.replace(
    /<([a-zA-Z]+)((?:\s+[^\s=>]+(?:\s*=\s*(?:"[^"]*"|'[^']*'|[^\s"'>]+))?)*\s*\/?>)/g,
    (whole, name, rest) => {
      const attributes = URL_ATTRIBUTES[String(name).toLowerCase()];
      if (!attributes) return whole;
      const changed = String(rest).replace(
        /(\s)([^\s=>]+)(\s*=\s*)("[^"]*"|'[^']*'|[^\s"'>]+)/g,
        (all, space, attribute, equals, value: string) => {
          if (!attributes.includes(String(attribute).toLowerCase())) return all;
          const quote = /^["']/.test(value) ? value.charAt(0) : '';
          const url = quote === '' ? value : value.slice(1, -1);
          return `${space}${attribute}${equals}${quote}${rewrite(url)}${quote}`;
        },
      );
      return `<${name}${changed}`;
    },
  );
}

/**
 * Rewrites a URL of a proxied response for the client: paths of the backend move below `prefix`; URLs of other hosts
 * are unchanged (apimachinery proxy.Transport rewriteURL).
 */
export function rewriteProxyUrl(url: string, backendHost: string, ownHost: string, prefix: string): string {
  // Fragments and relative references need no change.
  const absolute = /^([a-z][a-z0-9+.-]*:)?\/\/([^/?#]*)(.*)$/i.exec(url);
  const host = absolute?.[2] ?? '';
  if (absolute && host !== backendHost && host !== ownHost) return url;
  const path = absolute ? absolute[3] || '/' : url;
  if (!absolute && !path.startsWith('/')) return url;
  if (path === prefix || path.startsWith(`${prefix}/`)) return path;
  return `${prefix}${path.startsWith('/') ? path : `/${path}`}`;
}
