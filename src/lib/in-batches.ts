/** Calls `act` for every item, at most `limit` at the same time. Rejects with the first error, when the started calls have ended. */
export async function inBatches<T>(
  items: Iterable<T>,
  limit: number,
  act: (item: T) => Promise<void>,
): Promise<void> {
  const iterator = items[Symbol.iterator]();
  let failed = false;
  const work = async () => {
    for (let next = iterator.next(); !next.done && !failed; next = iterator.next()) {
      try {
        await act(next.value);
      } catch (error) {
        failed = true;
        throw error;
      }
    }
  };
  const results = await Promise.allSettled(Array.from({ length: limit }, work));
  const refused = results.find((result) => result.status === 'rejected');
  if (refused) throw refused.reason;
}
