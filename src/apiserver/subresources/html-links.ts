import { ownMember } from '../../lib/own-member.ts';

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

// Each is used at one place of the text, and reads it once.
const TAG_NAME = /[a-zA-Z][^\s/>]*/y;
const SPACE = /[\s/]*/y;
const ATTRIBUTE_NAME = /=?[^\s=/>]*/y;
const EQUALS = /\s*=\s*/y;
const UNQUOTED = /[^\s>]*/y;

/**
 * Rewrites the URLs in the elements of an HTML text; all other bytes are unchanged. Reads the text once, whatever a pod has written:
 * what follows an element without an end belongs to it.
 */
export function rewriteHtmlLinks(html: string, rewrite: (url: string) => string): string {
  const parts: string[] = [];
  let [at, copied] = [0, 0];
  const read = (pattern: RegExp): string | null => {
    pattern.lastIndex = at;
    const text = pattern.exec(html)?.[0] ?? null;
    at += text?.length ?? 0;
    return text;
  };
  /** Returns the place of a value; null: its end is missing. */
  const readValue = (): readonly [from: number, to: number] | null => {
    const quote = html.charAt(at);
    if (quote !== '"' && quote !== "'") {
      const from = at;
      read(UNQUOTED);
      return [from, at];
    }
    const from = at + 1;
    const to = html.indexOf(quote, from);
    if (to < 0) return null;
    at = to + 1;
    return [from, to];
  };
  for (;;) {
    at = html.indexOf('<', at);
    if (at < 0) break;
    at++;
    const element = read(TAG_NAME);
    if (element === null) continue;
    const attributes = ownMember(URL_ATTRIBUTES, element.toLowerCase());
    while (at < html.length) {
      read(SPACE);
      if (html[at] === '>') break;
      const name = read(ATTRIBUTE_NAME) ?? '';
      if (read(EQUALS) === null) continue;
      const value = readValue();
      if (value === null) at = html.length;
      else if (attributes?.includes(name.toLowerCase())) {
        const [from, to] = value;
        parts.push(html.slice(copied, from), rewrite(html.slice(from, to)));
        copied = to;
      }
    }
  }
  return parts.join('') + html.slice(copied);
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
