import { CLUSTER_IPS } from '../dataplane/rules/address-elements.ts';
import { namedEndpoints } from '../dataplane/rules/steps.ts';
import { createLayout, TABLE } from '../dataplane/userspace/layout.ts';
import { renderFrontend, renderListener, type Target } from '../dataplane/userspace/render.ts';
import { hostPort, type SocketAddress } from '../lib/address.ts';
import { type Frontend, type Pool, SOURCE_CLASSES, type SourceClass } from '../service/model.ts';
import { type NftContents, nftBytes, nftSections } from './nft-objects.ts';
import { addressGroups, clusterIPsOf } from './nftables.ts';
import {
  byFamily,
  filled,
  mainFrontend,
  type ObjectSection,
  type RenderInput,
  type Rendering,
} from './rendering.ts';

/** Stands for the port of a listener that is not open. */
const UNKNOWN_PORT = 0;

interface Listener {
  readonly pool: Pool;
  readonly family: Frontend['family'];
  readonly protocol: 'TCP' | 'UDP';
  readonly at: SocketAddress;
}

export function renderUserspace(input: RenderInput): Rendering {
  const { map, node, frontends } = input;
  const listeners = new Map<string, Listener>();
  const targetOf = (frontend: Frontend, source: SourceClass): Target => {
    const route = frontend.routes[source];
    if (route.action !== 'forward') return route.action;
    const { protocol, family } = frontend;
    const ip = node[family];
    // As the mode does for a listener that it cannot open.
    if (protocol === 'SCTP' || ip === null) return 'reject';
    const { pool } = route;
    const at = input.listenerOf(pool.id) ?? { ip, port: UNKNOWN_PORT };
    listeners.set(pool.id, { pool, family, protocol, at });
    return at;
  };
  const targets = new Map(
    frontends.map((frontend) => [
      frontend,
      Object.fromEntries(SOURCE_CLASSES.map((source) => [source, targetOf(frontend, source)])) as Record<
        SourceClass,
        Target
      >,
    ]),
  );
  const contents = byFamily(frontends).map(({ family, frontends: own }): NftContents => {
    const layout = createLayout(family, node);
    return {
      family,
      table: TABLE,
      sets: layout.sets,
      groups: [
        ...own.map((frontend) =>
          renderFrontend({ frontend, targets: targets.get(frontend) ?? NO_TARGETS, pools: [] }),
        ),
        ...[...listeners.values()]
          .filter((one) => one.family === family)
          .map((one) => renderListener({ ...one, pool: one.pool.id })),
        ...addressGroups(CLUSTER_IPS, family, clusterIPsOf(own, map)),
      ],
    };
  });
  const isOpen = [...listeners.values()].every(({ at }) => at.port !== UNKNOWN_PORT);
  const main = mainFrontend(frontends);
  const isForwarded = main?.routes.pod.action === 'forward' && main.protocol !== 'SCTP';
  return {
    sections: filled([
      {
        kind: 'listeners',
        command: 'ss -ltnup',
        lines: [...listeners.values()].map(listenerText),
        isShared: false,
      },
      ...contents.flatMap(nftSections).map(withoutPorts),
    ]),
    sizes: [{ what: 'netlink transaction', bytes: contents.reduce((sum, one) => sum + nftBytes(one), 0) }],
    translatedAt: isForwarded
      ? 'hook prerouting or output, to a listener; then the proxy connects'
      : 'nowhere: the packet is refused or dropped',
    firstPacket: isForwarded
      ? {
          least: 3,
          most: 3,
          text: '3 lookups, regardless of the number of Services; then a connection of the proxy to the next endpoint in turn',
        }
      : { least: 2, most: 2, text: '2 lookups, the last of which ends it' },
    laterPackets: isForwarded ? 'a process copies all data' : 'none',
    notes: isOpen ? [] : ['the kernel chooses the port of a listener when the mode opens it: PORT'],
  };
}

const NO_TARGETS: Readonly<Record<SourceClass, Target>> = {
  pod: 'reject',
  node: 'reject',
  external: 'reject',
};

function listenerText({ pool, protocol, at }: Listener): string {
  const where = hostPort(at).replace(/:0$/, ':PORT');
  return `${protocol.toLowerCase()} ${where} of pool ${pool.id}, in turn to ${namedEndpoints(pool.endpoints)}`;
}

const withoutPorts = (section: ObjectSection): ObjectSection => ({
  ...section,
  lines: section.lines.map((line) => line.replace(/ \. 0(?= comment|$)/, ' . PORT')),
});
