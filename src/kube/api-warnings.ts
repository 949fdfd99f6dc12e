import type { Transport } from './transport.ts';

/** Returns a transport that passes on the warnings of each answer (RFC 7234, section 5.5; KEP-1693). */
export function withWarnings(
  transport: Transport,
  onWarning: (text: string, path: string) => void,
): Transport {
  return async (request) => {
    const response = await transport(request);
    for (const text of parseWarnings(response.headers['warning'] ?? '')) onWarning(text, request.path);
    return response;
  };
}

/** Parses `299 - "text", 299 - "text"`: the texts of warnings of code 299. */
export function parseWarnings(header: string): readonly string[] {
  return [...header.matchAll(/\b299 \S+ "((?:[^"\\]|\\.)*)"/g)].map(([, text = '']) =>
    text.replace(/\\(.)/g, '$1'),
  );
}
