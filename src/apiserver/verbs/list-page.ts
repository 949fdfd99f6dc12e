import { badRequest, expired } from '../status-error.ts';
import type { Store, StoredObject } from '../store.ts';

export interface PageRequest {
  readonly collection: string;
  readonly namespace: string | undefined;
  readonly matches: (object: StoredObject['object']) => boolean;
  /** No filter applies, so that the remaining objects can be counted. */
  readonly everything: boolean;
  /** 0: no limit. */
  readonly limit: number;
  /** The continue token of the previous page, or "". */
  readonly continue: string;
  /** The version of the list; null: the latest. */
  readonly exactly: number | null;
}

export interface Page {
  readonly items: readonly StoredObject[];
  readonly version: number;
  readonly continue: string | null;
  /** Number of objects after this page; null if selectors make that unknown. */
  readonly remaining: number | null;
}

/** The position at which a list continues: after this key, at this version (-1: the latest at that time). */
interface Position {
  readonly version: number;
  readonly after: string;
}

const TOO_OLD =
  'The provided continue parameter is too old to display a consistent list result. You can start a new list without the continue parameter, or use the continue token in this response to retrieve the remainder of the results. Continuing with the provided token results in an inconsistent list - objects that were created, modified, or deleted between the time the first chunk was returned and now may show up in the list.';

/** The candidate objects of a page: those of one version, after the previous page. */
export interface PageCandidates {
  readonly objects: readonly StoredObject[];
  readonly version: number;
}

/**
 * Returns the objects of a page's version, reconstructed from the store's history: all pages of a list show one
 * version. If the history no longer contains it, throws 410 with a token that continues at the latest version (as
 * upstream's handling of compaction).
 */
export function pageCandidates(store: Store, request: PageRequest): PageCandidates {
  const position = request.continue === '' ? null : decode(request.continue);
  const wanted = position ? position.version : (request.exactly ?? store.version);
  const version = wanted < 0 ? store.version : wanted;
  const all = store.listAt(version, request.collection, request.namespace);
  if (all === null) {
    if (!position) throw expired(`The resourceVersion for the provided list is too old: ${version}`);
    throw expired(TOO_OLD, { continue: encode({ version: -1, after: position.after }) });
  }
  return { objects: position ? all.filter((stored) => stored.key > position.after) : all, version };
}

/** Returns one page of a list: the first candidates that match. */
export function listPage({ objects: rest, version }: PageCandidates, request: PageRequest): Page {
  const items: StoredObject[] = [];
  for (const [i, stored] of rest.entries()) {
    if (request.limit > 0 && items.length === request.limit) {
      const more = request.everything || rest.slice(i).some((one) => request.matches(one.object));
      const after = items.at(-1)?.key ?? '';
      return {
        items,
        version,
        continue: more ? encode({ version, after }) : null,
        remaining: request.everything ? rest.length - i : null,
      };
    }
    if (request.matches(stored.object)) items.push(stored);
  }
  return { items, version, continue: null, remaining: null };
}

function encode(position: Position): string {
  return Buffer.from(`${position.version}:${position.after}`).toString('base64url');
}

function decode(token: string): Position {
  const [, version, after] = /^(-?[0-9]+):(.*)$/s.exec(Buffer.from(token, 'base64url').toString()) ?? [];
  if (version === undefined || after === undefined)
    throw badRequest('invalid continue token: continue key is not valid');
  return { version: Number(version), after };
}
