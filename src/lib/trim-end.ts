/** Returns a text without the characters `end` at its end. An expression would read the text once for each of them. */
export function trimEnd(text: string, end: string): string {
  let length = text.length;
  while (length > 0 && text[length - 1] === end) length--;
  return text.slice(0, length);
}
