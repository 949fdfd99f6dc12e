/**
 * The largest user or group number. The next one, 2^32 - 1, means "leave as it is" to system calls (setresuid(2),
 * chown(2)): a process with it runs as root.
 */
export const MAX_ID = 2 ** 32 - 2;

/** The largest user or group number in API objects (upstream's IsValidUserID, IsValidGroupID). */
export const MAX_API_ID = 2 ** 31 - 1;

/** Returns the number of a decimal text; null for other texts and numbers that no user or group can have. */
export function parseId(text: string): number | null {
  if (!/^[0-9]+$/.test(text)) return null;
  const id = Number(text);
  return id <= MAX_ID ? id : null;
}

/** Reports whether a number in an API object is one of a user or group. */
export function isApiId(id: number): boolean {
  return Number.isInteger(id) && id >= 0 && id <= MAX_API_ID;
}
