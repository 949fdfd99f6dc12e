import { hash } from 'node:crypto';
import { messageOf } from '../../lib/errors.ts';
import type { Backend, BackendTls, Forward, RouteMap, RouteRow, WeightedBackend } from '../route-map.ts';
import { actionLines } from './action-section.ts';
import { literal, word } from './quote.ts';
import type { RefusedRow, Section } from './rendering.ts';

/** Where a row's requests go: a section, or one of several by weight. */
export type Target =
  | { readonly kind: 'section'; readonly name: string }
  | { readonly kind: 'weighted'; readonly name: string; readonly choices: readonly Choice[] };

export interface Choice {
  readonly section: string;
  readonly weight: number;
}

/** Collects the sections of a map: rows with the same action and backends share one. */
export interface SectionTable {
  target(row: RouteRow): Target;
  readonly sections: readonly Section[];
  readonly refused: readonly RefusedRow[];
  readonly rowsOf: ReadonlyMap<string, readonly string[]>;
}

/** Name of the section that answers requests which no row takes. */
export const NO_ROW = 'none';

export function createSectionTable({ backends }: RouteMap, excluded: ReadonlySet<string>): SectionTable {
  const known = new Map(backends.map((backend) => [backend.key, backend]));
  const sections: Section[] = [];
  const names = new Map<string, string>();
  const weighted = new Map<string, Target>();
  const targets = new Map<string, Target>();
  const refused: RefusedRow[] = [];
  const rowsOf = new Map<string, string[]>();

  const sectionOf = (row: RouteRow, chosen: WeightedBackend | null): string => {
    const backend = chosen?.backend == null ? null : (known.get(chosen.backend) ?? null);
    const key = sectionKey(row, chosen, backend);
    const name = names.get(key) ?? add(key, row, chosen, backend);
    const rows = rowsOf.get(name);
    if (rows) rows.push(row.id);
    else rowsOf.set(name, [row.id]);
    return name;
  };
  const add = (
    key: string,
    row: RouteRow,
    chosen: WeightedBackend | null,
    backend: Backend | null,
  ): string => {
    const name = `s${sections.length}`;
    const isUsable = row.action.kind !== 'forward' || backend !== null;
    const lines = actionLines(
      row.action,
      row.path,
      isUsable || chosen === null ? chosen : { ...chosen, backend: null },
    );
    sections.push({
      name,
      lines,
      backend,
      serverWords: backend ? serverWords(backend, row.action as Forward) : '',
    });
    names.set(key, name);
    return name;
  };
  const create = (row: RouteRow): Target => {
    if (row.action.kind !== 'forward') return { kind: 'section', name: sectionOf(row, null) };
    const used = row.action.backends.filter(({ weight }) => weight > 0);
    const choices = used.map((chosen) => ({ section: sectionOf(row, chosen), weight: chosen.weight }));
    const [first] = choices;
    if (!first) return { kind: 'section', name: sectionOf(refusedRow(row), null) };
    if (choices.length === 1) return { kind: 'section', name: first.section };
    const key = JSON.stringify(choices);
    const same = weighted.get(key);
    if (same) return same;
    const target: Target = { kind: 'weighted', name: `w${weighted.size}`, choices };
    weighted.set(key, target);
    return target;
  };
  return {
    sections,
    refused,
    rowsOf,
    target(row) {
      const found = targets.get(row.id);
      if (found) return found;
      let target: Target;
      try {
        target = create(excluded.has(row.id) ? refusedRow(row) : row);
      } catch (error) {
        refused.push({ id: row.id, reason: messageOf(error) });
        target = create(refusedRow(row));
      }
      targets.set(row.id, target);
      return target;
    },
  };
}

/** A request of a row that cannot be implemented must not reach the rows behind it. */
const refusedRow = (row: RouteRow): RouteRow => ({
  ...row,
  action: { kind: 'error', status: 500, reason: 'the proxy refuses this route' },
});

function sectionKey(row: RouteRow, chosen: WeightedBackend | null, backend: Backend | null): string {
  const { action, path } = row;
  if (action.kind === 'error') return `error ${action.status}`;
  const rewrite = action.kind === 'redirect' ? action.path : (action.rewrite?.path ?? null);
  // Only these depend on the path that has led here.
  const matched = rewrite !== null && rewrite.kind !== 'full' ? path : null;
  const { reason: _reason, weight: _weight, ...kept } = chosen ?? { reason: null, weight: 0 };
  const { backends: _backends, ...rest } = action as Forward;
  return JSON.stringify([rest, matched, kept, backend?.key ?? null]);
}

function serverWords({ protocol, tls }: Backend, { protocol: routed, affinity: _affinity }: Forward): string {
  const isH2 = protocol === 'h2c' || (routed === 'grpc' && protocol !== 'websocket');
  if (tls === null) return isH2 ? ' proto h2' : '';
  return ` ${tlsWords(tls)}${isH2 ? ' alpn h2' : ''}`;
}

function tlsWords({ hostname, names, authorities, certificate, verify }: BackendTls): string {
  const sni = hostname === '' ? '' : ` sni str(${literal(hostname)})`;
  const key = certificate === null ? '' : ` crt ${word(certificateFile(certificate))}`;
  if (!verify) return `ssl verify none${sni}${key}`;
  const ca = authorities.length === 0 ? '@system-ca' : authorityFile(authorities);
  return `ssl verify required ca-file ${word(ca)} verifyhost ${word(names[0] ?? hostname)}${sni}${key}`;
}

/** A digest: the names of namespace and object together are longer than a file's may be. */
const digest = (key: string): string => hash('sha256', key, 'hex').slice(0, 32);

export const certificateFile = (key: string): string => `certificate-${digest(key)}.pem`;

export const authorityFile = (keys: readonly string[]): string => `authorities-${digest(keys.join('+'))}.pem`;
