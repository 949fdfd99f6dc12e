import { readFileSync } from 'node:fs';
import { Agent } from 'node:https';
import { parseAllDocuments } from 'yaml';
import { KINDS } from '../../src/apiserver/kinds.ts';
import { SERVICE_ACCOUNT_SECRET } from '../../src/apiserver/service-account-tokens.ts';
import { startApi } from '../../src/apiserver/testing/api.ts';
import { eventually } from '../../src/lib/testing/eventually.ts';
import { difference, sameMessage } from './compare.ts';
import { type ApiClient, DEFAULT_ACCOUNT, type Oracle, rawSender, sender } from './oracle.ts';
import { type Variation, variationsOf } from './variations.ts';

export interface Finding {
  readonly kind: string;
  readonly verb: 'create' | 'update';
  readonly object: string;
  readonly variation: string;
  readonly difference: string;
}

export interface KindCount {
  asked: number;
  differ: number;
  /** Rejections that agree except for the wording. */
  otherWords: number;
}

export interface TestResult {
  readonly findings: readonly Finding[];
  /** By "Kind verb". */
  readonly counts: ReadonlyMap<string, KindCount>;
}

const IN_FLIGHT = 8;

export type BaseObject = Record<string, unknown> & {
  kind: string;
  apiVersion: string;
  metadata: { name: string };
};

/** Returns the valid objects that variations are made of. */
export function baseObjects(): BaseObject[] {
  const source = readFileSync(new URL('./objects.yaml', import.meta.url), 'utf8');
  return parseAllDocuments(source).map((document) => document.toJS() as BaseObject);
}

/**
 * Starts the embedded server in this process and connects over HTTPS with an administrator's certificate.
 */
export async function startOurServer(): Promise<Oracle> {
  const api = startApi({ mountTokens: true });
  const [port = 0] = await api.server.listen([{ host: '127.0.0.1', port: 0 }]);
  const identity = api.authority.issue({
    commonName: 'admin',
    organizations: ['system:masters'],
    names: [],
    usage: 'client',
  });
  const agent = new Agent({ keepAlive: true, maxSockets: 8, rejectUnauthorized: false, ...identity });
  const send = sender(agent, port);
  await send('POST', '/api/v1/namespaces/default/serviceaccounts', DEFAULT_ACCOUNT);
  return {
    send,
    sendRaw: rawSender(agent, port),
    async stop() {
      agent.destroy();
      await api.server.close();
    },
  };
}

/**
 * Returns the collection's path of an object in the namespace default. Throws Error for a kind that is not
 * served.
 */
export function pathOf(object: BaseObject): string {
  const kind = KINDS.find(
    (one) =>
      (one.group === '' ? one.version : `${one.group}/${one.version}`) === object.apiVersion &&
      one.kind === object.kind,
  );
  if (!kind) throw new Error(`${object.apiVersion} ${object.kind} is not served`);
  const prefix = kind.group === '' ? `/api/${kind.version}` : `/apis/${kind.group}/${kind.version}`;
  return kind.namespaced ? `${prefix}/namespaces/default/${kind.plural}` : `${prefix}/${kind.plural}`;
}

/**
 * Posts every variation of every base object to both servers, then replaces the object with every
 * variation; both with dryRun, so that requests are independent. `wanted` limits the kinds.
 */
export async function runVariations(
  oracle: Oracle,
  ours: ApiClient,
  wanted: (kind: string) => boolean = () => true,
): Promise<TestResult> {
  const findings: Finding[] = [];
  const counts = new Map<string, KindCount>();
  for (const base of baseObjects()) {
    if (!wanted(base.kind)) continue;
    const path = pathOf(base);
    const ask = async (
      verb: 'create' | 'update',
      variation: Variation,
      forOracle: unknown,
      forOurs: unknown,
    ) => {
      const [method, where] = verb === 'create' ? ['POST', path] : ['PUT', path + nameOf(base)];
      const query = `?dryRun=All&fieldManager=tester${variation.query ?? ''}`;
      const [expected, actual] = await Promise.all([
        oracle.send(method, where + query, forOracle),
        ours(method, where + query, forOurs),
      ]);
      const key = `${base.kind} ${verb}`;
      const count = counts.get(key) ?? { asked: 0, differ: 0, otherWords: 0 };
      counts.set(key, count);
      count.asked++;
      const found = difference(expected, actual);
      if (found !== null) {
        count.differ++;
        findings.push({
          kind: base.kind,
          verb,
          object: base.metadata.name,
          variation: variation.name,
          difference: found,
        });
      } else if (expected.status >= 400 && !sameMessage(expected, actual)) count.otherWords++;
    };
    const variations = variationsOf(base);
    await inParallel(variations, (one) => ask('create', one, one.of(base), one.of(base)));
    const [made, madeHere] = await Promise.all([oracle.send('POST', path, base), ours('POST', path, base)]);
    if (made.status !== 201 || madeHere.status !== 201) {
      const both = difference(made, madeHere) ?? `both answer ${made.status}: ${JSON.stringify(made.body)}`;
      findings.push({
        kind: base.kind,
        verb: 'create',
        object: base.metadata.name,
        variation: 'for the updates',
        difference: both,
      });
      continue;
    }
    // Read again: a controller in the server may have written its status meanwhile.
    const read = async (send: ApiClient) => (await send('GET', path + nameOf(base))).body as BaseObject;
    const [stored, storedHere] = await Promise.all([
      read(oracle.send),
      eventually(() => read(ours), isFilled),
    ]);
    await inParallel(variations, (one) => ask('update', one, one.of(stored), one.of(storedHere)));
    const own = `${path}${nameOf(base)}?gracePeriodSeconds=0`;
    await Promise.all([oracle.send('DELETE', own), ours('DELETE', own)]);
  }
  return { findings, counts };
}

/** The server fills these Secrets after it has answered; an update before that would be a conflict. */
const isFilled = ({ type, data }: BaseObject) => type !== SERVICE_ACCOUNT_SECRET || data !== undefined;

const nameOf = ({ metadata }: BaseObject) => `/${encodeURIComponent(metadata.name)}`;

/** Works on several items at a time. */
export async function inParallel<T>(items: readonly T[], work: (item: T) => Promise<void>): Promise<void> {
  const queue = [...items];
  await Promise.all(
    Array.from({ length: IN_FLIGHT }, async () => {
      for (let item = queue.shift(); item !== undefined; item = queue.shift()) await work(item);
    }),
  );
}
