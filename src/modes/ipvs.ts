import {
  ALIAS,
  type FrontendPlan,
  type PlannedServer,
  planFrontend,
} from '../dataplane/ipvs/frontend-plan.ts';
import { createLayout, TABLE } from '../dataplane/ipvs/layout.ts';
import { markScheme, NumberTable, PORTS } from '../dataplane/ipvs/marks.ts';
import { ADDRESSES, entriesOf, renderFrontend } from '../dataplane/ipvs/render.ts';
import { SCHEDULERS } from '../dataplane/ipvs/schedulers.ts';
import { INTERFACE } from '../dataplane/ipvs/service-interface.ts';
import { HAIRPIN } from '../dataplane/rules/address-elements.ts';
import { hostPort } from '../lib/address.ts';
import type { Frontend } from '../service/model.ts';
import { type NftContents, nftBytes, nftSections } from './nft-objects.ts';
import { addressGroups, clusterIPsOf, hairpinAddressesOf } from './nftables.ts';
import {
  byFamily,
  filled,
  type Lookups,
  mainFrontend,
  type ObjectSection,
  type RenderInput,
  type Rendering,
} from './rendering.ts';

/** Schedulers that compare all real servers for each new connection. */
const COMPARING = new Set(['lc', 'wlc', 'lblc', 'lblcr', 'sed', 'nq', 'fo', 'ovf']);
const PROTOCOL_OPTION: Readonly<Record<number, string>> = { 6: '-t', 17: '-u', 132: '--sctp-service' };
const SCHEDULER_OPTIONS: Readonly<Record<string, string>> = {
  sh: ' -b sh-fallback',
  mh: ' -b mh-fallback,mh-port',
};

export function renderIpvs(input: RenderInput): Rendering {
  const { map, node, frontends } = input;
  const scheme = markScheme(node.masqueradeBit);
  const marks = new NumberTable(scheme);
  const aliases = new NumberTable(PORTS);
  // Addresses of the node itself are not bound to the mode's device, so that other programs keep their servers on them.
  const own = new Set([node.ipv4, node.ipv6]);
  const mine = new Set(frontends);
  // The mode numbers the frontends of all Services in this taken.
  const plans = [...map.frontends.values()].flatMap((frontend) => {
    const plan = planFrontend(frontend, {
      bound: frontend.address !== null && !own.has(frontend.address),
      marks,
      aliases,
      scheduler: frontend.options.ipvsScheduler ?? node.ipvsScheduler,
    });
    return mine.has(frontend) ? [plan] : [];
  });
  const addresses = new Set(
    frontends.flatMap(({ address }) => (address === null || own.has(address) ? [] : [address])),
  );
  const contents = byFamily(frontends).map(({ family, frontends: ofFamily }): NftContents => {
    const layout = createLayout(family, node, scheme);
    return {
      family,
      table: TABLE,
      sets: layout.sets,
      groups: [
        ...plans
          .filter((plan) => plan.frontend.family === family)
          .map((plan) => renderFrontend(plan, layout)),
        ...addressGroups(ADDRESSES, family, new Set([...addresses, ...clusterIPsOf(ofFamily, map)])),
      ],
      shared: [
        ...addressGroups(HAIRPIN, family, hairpinAddressesOf(ofFamily, map)),
        ...addressGroups(ADDRESSES, family, [ALIAS[family]]),
      ],
    };
  });
  const servers = plans.flatMap((plan) => plan.servers);
  const main = mainFrontend(frontends);
  const plan = plans.find((one) => one.frontend === main);
  return {
    sections: filled([
      {
        kind: 'virtual servers',
        command: 'ipvsadm-save -n',
        lines: servers.map((one) => `-A ${serverText(one)} -s ${schedulerText(one)}`),
        isShared: false,
      },
      {
        kind: 'real servers',
        command: 'ipvsadm-save -n',
        lines: servers.flatMap((one) =>
          one.endpoints.map(
            (real) => `-a ${serverText(one)} -r ${hostPort(real)} -m -w ${one.scheduler.weight}`,
          ),
        ),
        isShared: false,
      },
      addressSection([...addresses], false),
      // Packets to persistent servers of some Services are redirected to it.
      addressSection(
        byFamily(frontends).map(({ family }) => ALIAS[family]),
        true,
      ),
      ...contents.flatMap(nftSections),
    ]),
    sizes: [
      {
        what: 'netlink transaction of nf_tables',
        bytes: contents.reduce((sum, one) => sum + nftBytes(one), 0),
      },
    ],
    translatedAt: 'hook input (pods, outside) or output (the node): ip_vs, after its rules',
    firstPacket: main && plan ? lookups(main, plan, input) : { least: 0, most: 0, text: '' },
    laterPackets: 'ip_vs and connection tracking',
    notes: servers.some(({ holder }) => holder !== null)
      ? ['marks and ports of the alias address are those of a first start: the mode keeps earlier ones']
      : [],
  };
}

const addressSection = (addresses: readonly string[], isShared: boolean): ObjectSection => ({
  kind: 'addresses',
  command: `ip address show dev ${INTERFACE}`,
  lines: addresses.map((ip) => (ip.includes(':') ? `inet6 ${ip}/128` : `inet ${ip}/32`)),
  isShared,
});

function serverText({ server: { id } }: PlannedServer): string {
  if ('mark' in id) return `-f ${id.mark}${id.family === 'ipv6' ? ' -6' : ''}`;
  return `${PROTOCOL_OPTION[id.protocol] ?? '-t'} ${hostPort({ ip: id.address, port: id.port })}`;
}

function schedulerText({ server: { scheduler, persistenceSeconds } }: PlannedServer): string {
  const flags = scheduler in SCHEDULERS ? (SCHEDULER_OPTIONS[scheduler] ?? '') : '';
  return `${scheduler}${persistenceSeconds === null ? '' : ` -p ${persistenceSeconds}`}${flags}`;
}

/** Counts the lookups of a pod's first packet: source ranges, the frontend's action, its mark, and its virtual server. */
function lookups(frontend: Frontend, plan: FrontendPlan, { node }: RenderInput): Lookups {
  const { hasPods } = createLayout(frontend.family, node, markScheme(node.masqueradeBit));
  const entries = entriesOf(plan, hasPods);
  const own = entries.find(({ sources }) => sources === (hasPods ? 'pod' : 'external'));
  const entry = own ?? entries.find(({ sources }) => sources === 'any');
  const found = 1 + (own ? 1 : 2) + (entry?.mark == null ? 0 : 1);
  const taken = plan.actions.pod;
  if (taken.action === 'reject' || taken.action === 'drop')
    return { least: found, most: found, text: `${found} lookups, the last of which ends it` };
  const [server] = plan.servers;
  const count = server?.endpoints.length ?? 0;
  const isComparing = COMPARING.has(server?.server.scheduler ?? '');
  const total = found + 1 + (isComparing ? count : 1);
  return {
    least: total,
    most: total,
    text: isComparing
      ? `${found + 1} lookups, then scheduler ${server?.server.scheduler} compares all ${count} endpoints`
      : `${total} lookups, regardless of the number of Services and endpoints`,
  };
}
