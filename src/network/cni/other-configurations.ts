import { readOptionalFolder } from '../../kernel/optional-file.ts';
import type { Clock } from '../../lib/clock.ts';
import { CONFLIST } from './installation.ts';

/** The names that container runtimes read. */
const EXTENSIONS: ReadonlySet<string> = new Set(['.conf', '.conflist', '.json']);
const POLL_MS = 10_000;

/**
 * Returns the network configuration that container runtimes use instead of Fairlead's, because its name comes first; null:
 * they use Fairlead's.
 */
function configurationBeforeOurs(confDir: string): string | null {
  const [first = null] = readOptionalFolder(confDir)
    .filter(
      (name) =>
        EXTENSIONS.has(name.slice(Math.max(name.lastIndexOf('.'), 0))) && compareBytes(name, CONFLIST) < 0,
    )
    .sort(compareBytes);
  return first;
}

/** Runtimes compare bytes, not UTF-16. */
const compareBytes = (a: string, b: string): number => Buffer.compare(Buffer.from(a), Buffer.from(b));

/**
 * Calls `onChange` with the configuration that is used instead of Fairlead's, at once if there is one and whenever it is
 * another; null: it is gone. Returns a function that ends this.
 */
export function watchConfigurations(
  confDir: string,
  { clock, onChange }: { readonly clock: Clock; readonly onChange: (file: string | null) => void },
): () => void {
  let known: string | null = null;
  let cancel = () => {};
  const poll = () => {
    cancel = clock.after(POLL_MS, poll);
    const file = configurationBeforeOurs(confDir);
    if (file === known) return;
    known = file;
    onChange(known);
  };
  poll();
  return () => cancel();
}
