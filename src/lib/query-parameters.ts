/** As Go's net/url: parsing takes time that grows faster than the query. */
const MAX_PARAMETERS = 10_000;

/** Reports whether the query of a URL has too many parameters to be parsed. */
export function hasTooManyParameters(url: string): boolean {
  let count = 0;
  for (let at = url.indexOf('&'); at >= 0; at = url.indexOf('&', at + 1))
    if (++count >= MAX_PARAMETERS) return true;
  return false;
}
