/** Compares versions of a resource as numbers (KEP-5504); a version that is not a number is never later. */
export function isLater(version: string, than: string): boolean {
  if (version.length === 0 || !/^[0-9]+$/.test(version) || !/^[0-9]+$/.test(than)) return false;
  return version.length === than.length ? version > than : version.length > than.length;
}
