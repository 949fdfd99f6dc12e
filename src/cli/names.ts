import { openCluster } from '../cluster/cluster-access.ts';
import { listClusters } from '../cluster/state.ts';
import { userContexts } from '../cluster/user-contexts.ts';
import { createClient } from '../kube/client.ts';
import { httpTransport } from '../kube/transport.ts';
import { type KubeObject, RESOURCES } from '../kube/types.ts';
import { defineCommand } from './command.ts';
import { NAME_OPTION } from './name-option.ts';

/** The names that shells complete from the API server's objects. */
export const NAME_KINDS = ['clusters', 'nodes', 'pods', 'services', 'places', 'targets'] as const;
export type NameKind = (typeof NAME_KINDS)[number];

/** More would fill a terminal, and a shell waits for them. */
const MAX_NAMES = 2000;
/** Shells evaluate the words that they complete: other characters could be commands. */
const SAFE = /^[A-Za-z0-9._/:-]+$/;

/** Used by the scripts of `completion`. */
export const command = defineCommand({
  name: 'names',
  summary: '',
  description: [],
  arguments: [{ name: 'KIND', help: '', choices: NAME_KINDS }],
  options: { name: NAME_OPTION },
  asUser: ({ args: [kind], options }) => ({ cluster: kind === 'clusters' ? null : options.name }),
  async run({ args, options }, output) {
    const kind = NAME_KINDS.find((one) => one === args[0]) ?? 'clusters';
    const names = kind === 'clusters' ? clusterNames() : await objectNames(kind, options.name);
    const shown = safeNames(names);
    output.out(shown.map((name) => `${name}\n`).join(''));
    return 0;
  },
});

/** Returns the names that a shell may have, a bounded number. */
export const safeNames = (names: readonly string[]): string[] =>
  names.filter((name) => SAFE.test(name)).slice(0, MAX_NAMES);

function clusterNames(): string[] {
  const others = userContexts(process.env).map(({ cluster }) => cluster);
  return [...new Set([...listClusters(), ...others])];
}

async function objectNames(kind: Exclude<NameKind, 'clusters'>, cluster: string): Promise<string[]> {
  const transport = httpTransport((await openCluster(cluster)).credentials);
  const client = createClient(transport, 'fairlead-names');
  const pods = async () => (await client.list(RESOURCES.pods)).items.map(inNamespace);
  const nodes = async () => (await client.list(RESOURCES.nodes)).items.map(nameOf);
  const services = async () =>
    (await client.list(RESOURCES.services)).items.map((one) => `svc/${inNamespace(one)}`);
  const places = async () => [...(await pods()), ...(await nodes()).map((name) => `node/${name}`), 'outside'];
  try {
    switch (kind) {
      case 'nodes':
        return await nodes();
      case 'pods':
        return await pods();
      case 'services':
        return await services();
      case 'places':
        return await places();
      case 'targets':
        return [...(await services()), ...(await places())];
    }
  } finally {
    transport.close();
  }
}

const nameOf = ({ metadata }: KubeObject): string => metadata?.name ?? '';
/** Names in "default" need no namespace. */
function inNamespace({ metadata }: KubeObject): string {
  const { name = '', namespace = 'default' } = metadata ?? {};
  return namespace === 'default' ? name : `${namespace}/${name}`;
}
