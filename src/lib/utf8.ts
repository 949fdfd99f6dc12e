/** Returns the start of a text, at most this many bytes in UTF-8, without a part of a character. */
export function utf8Start(text: string, max: number): string {
  const bytes = Buffer.from(text);
  if (bytes.length <= max) return text;
  let end = max;
  while (isContinuation(bytes[end])) end--;
  return bytes.toString('utf8', 0, end);
}

/** Returns the end of a text, at most this many bytes in UTF-8, without a part of a character. */
export function utf8End(text: string, max: number): string {
  const bytes = Buffer.from(text);
  if (bytes.length <= max) return text;
  let start = bytes.length - max;
  while (isContinuation(bytes[start])) start++;
  return bytes.toString('utf8', start);
}

/** Reports whether a byte continues a character (RFC 3629). */
const isContinuation = (byte: number | undefined) => byte !== undefined && (byte & 0xc0) === 0x80;
