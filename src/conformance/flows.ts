import type { IPFamily } from '../lib/address.ts';
import type { Packet, SourceClass } from '../service/model.ts';
import { type DestinationKind, type Expectation, expect } from './expectation.ts';
import type { Addresses, Fixture, Place } from './fixture.ts';
import type { Scenario } from './scenarios.ts';

/** The frontends of a scenario's Service. */
export interface Frontends {
  readonly clusterIP: Addresses;
  /** Of port 80 and of port 81. */
  readonly nodePort: number;
  /** One address for each node through which packets from outside enter. */
  readonly loadBalancer: ReadonlyMap<string, Addresses>;
  readonly externalIP: ReadonlyMap<string, Addresses>;
}

/** One flow of the table: its origin, its destination and the expected outcome. */
export interface Flow<P extends Place = Place> {
  readonly scenario: string;
  readonly from: P;
  readonly sourceClass: SourceClass;
  readonly kind: DestinationKind | 'wrong port' | 'no Service' | 'localhost' | 'second port';
  readonly family: IPFamily;
  readonly protocol: 'TCP' | 'UDP';
  readonly address: string;
  readonly port: number;
  readonly expected: Expectation;
  /** All connections of one client go to one server. */
  readonly sticky: boolean;
  readonly message: string;
}

const PROTOCOLS = ['TCP', 'UDP'] as const;
const KINDS: readonly DestinationKind[] = ['clusterIP', 'nodePort', 'loadBalancer', 'externalIP'];
const CLASS: Readonly<Record<Place['kind'], SourceClass>> = { pod: 'pod', node: 'node', outside: 'external' };

/** Returns the flows of the scenarios: from every origin, to every kind of address, with both protocols and all families. */
export function flowsOf<P extends Place>(
  fixture: Fixture<P>,
  scenarios: readonly Scenario[],
  frontends: ReadonlyMap<string, Frontends>,
): Flow<P>[] {
  const flows: Flow<P>[] = [];
  for (const scenario of scenarios) {
    const known = frontends.get(scenario.name);
    if (!known) continue;
    for (const from of fixture.places) {
      for (const family of fixture.families) {
        for (const kind of KINDS) {
          const target = targetOf(fixture, known, kind, from, family);
          if (!target) continue;
          for (const protocol of PROTOCOLS) {
            flows.push({
              ...common(scenario, from, family, protocol),
              ...target,
              kind,
              expected: expectedOf(fixture, scenario, kind, from),
            });
          }
        }
      }
    }
  }
  return [...flows, ...specialFlows(fixture, scenarios, frontends)];
}

function common<P extends Place>(scenario: Scenario, from: P, family: IPFamily, protocol: 'TCP' | 'UDP') {
  return {
    scenario: scenario.name,
    from,
    sourceClass: CLASS[from.kind],
    family,
    protocol,
    sticky: scenario.affinity,
    message: 'hello',
  };
}

function targetOf(
  fixture: Fixture,
  frontends: Frontends,
  kind: DestinationKind,
  from: Place,
  family: IPFamily,
): { address: string; port: number } | null {
  // Outside has one route to a cluster IP. Without masquerading, replies of pods on other nodes would take another route.
  const strange = from.kind === 'outside' && kind === 'clusterIP';
  if (strange && (from.node !== fixture.entry || !fixture.configuration.localDetection)) return null;
  const address = {
    clusterIP: frontends.clusterIP[family],
    nodePort: fixture.primary.get(from.node)?.[family],
    loadBalancer: frontends.loadBalancer.get(from.node)?.[family],
    externalIP: frontends.externalIP.get(from.node)?.[family],
  }[kind];
  if (address === undefined) return null;
  return { address, port: kind === 'nodePort' ? frontends.nodePort : 80 };
}

function expectedOf(fixture: Fixture, scenario: Scenario, kind: DestinationKind, from: Place): Expectation {
  const mayEnter =
    kind !== 'loadBalancer' ||
    scenario.sourceRanges === null ||
    (scenario.sourceRanges === 'outside' && from.kind === 'outside');
  if (!mayEnter) return { action: 'drop' };
  return expect(scenario, kind, CLASS[from.kind], from.node, fixture.servers, fixture.configuration);
}

/** Further cases: a second port, a wrong port, an address without a Service, node ports on loopback. */
function specialFlows<P extends Place>(
  fixture: Fixture<P>,
  scenarios: readonly Scenario[],
  frontends: ReadonlyMap<string, Frontends>,
): Flow<P>[] {
  const [plain] = scenarios.filter(({ name }) => name === 'plain');
  const known = frontends.get('plain');
  if (!plain || !known) return [];
  return fixture.places.flatMap((from) =>
    fixture.families.flatMap((family) => {
      const target = targetOf(fixture, known, 'clusterIP', from, family);
      if (!target) return [];
      const clusterIP = target.address;
      const flow = (protocol: 'TCP' | 'UDP') => ({
        ...common(plain, from, family, protocol),
        address: clusterIP,
      });
      const loopback = family === 'ipv4' ? '127.0.0.1' : '::1';
      const expected = expectedOf(fixture, plain, 'clusterIP', from);
      return [
        { ...flow('TCP'), kind: 'second port' as const, port: 81, message: 'second', expected },
        ...PROTOCOLS.flatMap((protocol) => [
          {
            ...flow(protocol),
            kind: 'wrong port' as const,
            port: 4,
            expected: { action: 'reject' as const },
          },
          ...(from.kind === 'node'
            ? [
                {
                  ...flow(protocol),
                  kind: 'localhost' as const,
                  address: loopback,
                  port: known.nodePort,
                  expected: expectedOf(fixture, plain, 'nodePort', from),
                },
              ]
            : []),
        ]),
      ];
    }),
  );
}

/** Returns the flow's first packet, as the argument of `decide`. */
export function packetOf(flow: Flow): Packet {
  return {
    source: flow.kind === 'localhost' ? flow.address : (flow.from.addresses[flow.family] ?? ''),
    sourceClass: flow.sourceClass,
    destination: flow.address,
    destinationIsLocal: flow.kind === 'nodePort' || flow.kind === 'localhost',
    port: flow.port,
    protocol: flow.protocol,
  };
}
