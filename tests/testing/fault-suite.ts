import assert from 'node:assert/strict';
import { spawnSync } from 'node:child_process';
import { after, before, describe, test } from 'node:test';
import type { Mode } from '../../src/dataplane/dataplane.ts';
import { inNetns } from '../../src/kernel/netns.ts';
import { eventually } from '../../src/lib/testing/eventually.ts';
import { nodeNetns, wireNetns } from '../../src/network/topology.ts';
import { type Cluster, startCluster } from './cluster.ts';
import { TAKES_FULL_PRODUCT } from './pairwise.ts';
import { startFlows } from './shown-flows.ts';

/** The faults that people meet most often. For each, one command names the cause and the fix. */

const ECHO = '{image: fairlead, name: echo, command: [fairlead, echo, --port=8080]';
const server = (name: string, labels: string, node: string, rest = '') => `
apiVersion: v1
kind: Pod
metadata: {name: ${name}, labels: {${labels}}}
spec:
  nodeName: ${node}
  terminationGracePeriodSeconds: 0
  containers: [${ECHO}, ports: [{name: http, containerPort: 8080}]${rest}}]`;
const client = (name: string) => `
apiVersion: v1
kind: Pod
metadata: {name: ${name}, labels: {app: ${name}}}
spec:
  nodeName: node-1
  terminationGracePeriodSeconds: 0
  containers: [{image: fairlead, name: shell, command: [sleep, infinity]}]`;
const service = (name: string, app: string, port = '{port: 80, targetPort: 8080}', rest = '') => `
apiVersion: v1
kind: Service
metadata: {name: ${name}}
spec: {selector: {app: ${app}}, ports: [${port}]${rest}}`;

const PROBE = ', readinessProbe: {httpGet: {path: /none, port: 1}, periodSeconds: 1}';
const OBJECTS = [
  client('client'),
  client('mute'),
  server('far', 'app: far', 'node-2'),
  server('guarded', 'app: guarded', 'node-2'),
  server('slow', 'app: slow', 'node-2', PROBE),
  service('far', 'far'),
  service('wrong-target', 'far', '{port: 80, targetPort: 80}'),
  service('selector', 'faar'),
  service('slow', 'slow'),
  service('guarded', 'guarded'),
  service('named', 'far', '{port: 80, targetPort: web}'),
  service(
    'local',
    'far',
    '{port: 80, targetPort: 8080, nodePort: 30077}',
    ', type: NodePort, externalTrafficPolicy: Local',
  ),
  `
apiVersion: networking.k8s.io/v1
kind: NetworkPolicy
metadata: {name: guard}
spec: {podSelector: {matchLabels: {app: guarded}}, ingress: [{from: [{podSelector: {matchLabels: {role: friend}}}]}]}`,
  `
apiVersion: networking.k8s.io/v1
kind: NetworkPolicy
metadata: {name: no-dns}
spec: {podSelector: {matchLabels: {app: mute}}, policyTypes: [Egress], egress: [{to: [{podSelector: {}}]}]}`,
].join('\n---');

interface FaultRow {
  readonly name: string;
  /** Words of the only command; NODE1 stands for the address of the node. */
  readonly asks: readonly string[];
  /** What it prints: the cause, and then the fix. */
  readonly says: readonly RegExp[];
  /** The kernel does not follow the connection that the proxy of the userspace mode opens. */
  readonly inUserspace?: readonly RegExp[];
  /** Plants the fault while the command runs, and returns how to undo it; absent: it is among the objects. */
  readonly plant?: (cluster: Cluster) => Promise<() => Promise<void> | void>;
}

const explain = (from: string, to: string) => ['explain', from, to, '-4'];

const LOSES_LARGE_PACKETS: Required<Pick<FaultRow, 'plant'>> & FaultRow = {
  name: 'a network between nodes that loses large packets',
  asks: ['trace', 'client', 'svc/far', '-4'],
  says: [
    /BLACK HOLE: packets to the server larger than 1400 bytes vanish between node-1, uplink eth0 and node-2/,
    /raise the MTU between them to 1500/,
  ],
  // Rules at the port of the bridge between nodes: no node has them. Agents reach the API server.
  plant: (cluster) =>
    writeRules(
      wireNetns(cluster.name),
      'netdev',
      'hook ingress device "node-1"',
      'ip daddr 10.244.0.0/16 meta length > 1400 drop',
    ),
};

const ROWS: readonly FaultRow[] = [
  {
    name: 'a target port where nothing listens',
    asks: explain('client', 'svc/wrong-target'),
    says: [/^REJECTED/, /it listens on 8080/, /set spec\.ports\[0\]\.targetPort to 8080/],
  },
  {
    name: 'a selector with a typing error',
    asks: explain('client', 'svc/selector'),
    says: [/^REJECTED/, /no pod .*app=faar|app=faar/, /app=far\b/],
  },
  {
    name: 'a readiness probe that fails',
    asks: ['status'],
    says: [/Pod default\/slow: not ready: Readiness probe failed: connect ECONNREFUSED/, /correct the probe/],
  },
  {
    name: 'a network policy',
    asks: explain('client', 'svc/guarded'),
    says: [
      /^(DROPPED|REJECTED)/,
      /NetworkPolicy default\/guard isolates pod default\/guarded/,
      /role=friend/,
    ],
  },
  {
    name: 'a name of a port that no pod has',
    asks: explain('client', 'svc/named'),
    says: [/^REJECTED/, /\bweb\b/, /http|8080/],
  },
  {
    name: 'a typing error in a name',
    asks: explain('client', 'faar:80'),
    says: [/^NOT SENT/, /there is no Service default\/faar/, /did you mean far\?/],
  },
  {
    name: 'traffic policy Local, and no pod on the node',
    asks: explain('outside', 'NODE1:30077'),
    says: [/^(DROPPED|REJECTED)/, /node-1/, /externalTrafficPolicy/],
  },
  {
    name: 'a port that the Service does not have',
    asks: explain('client', 'svc/far:81'),
    says: [/^REJECTED/, /81/, /\b80\b/],
  },
  {
    name: 'a pod that connects to itself through its Service',
    asks: ['trace', 'far', 'svc/far', '-4'],
    says: [/^DELIVERED after .*which is right/m],
  },
  {
    name: 'an egress policy without DNS',
    asks: explain('mute', 'far:80'),
    says: [
      /^NOT SENT/,
      /NetworkPolicy default\/no-dns isolates pod default\/mute/,
      /protocol: UDP, port: 53/,
    ],
  },
  {
    name: 'a link that is cut',
    asks: explain('client', 'svc/far'),
    says: [/^(DROPPED|REJECTED)/, /a planted fault cuts the uplink of node-2/, /fix: fairlead fault undo/],
    async plant(cluster) {
      const undo = async () => assert.equal((await cluster.fairlead('fault', 'undo')).status, 0);
      const { status, error } = await cluster.fairlead('fault', 'cut', 'node-2');
      assert.equal(status, 0, error);
      return undo;
    },
  },
  {
    name: 'a rule of another program',
    asks: ['trace', 'client', 'svc/far', '-4'],
    says: [
      /which is right/,
      // As the kernel itself reports it.
      /dropped at node-2 by nf_tables: table inet other, chain forward, rule with handle \d/,
      /because .*table inet other, chain forward, .*rule with handle \d/,
      /fix: let the other program accept/,
    ],
    inUserspace: [/which is right/, /because .*table inet other, chain forward, .*rule with handle \d/],
    plant: (cluster) =>
      writeRules(nodeNetns(cluster.name, 'node-2'), 'inet', 'hook forward', 'tcp dport 8080 drop'),
  },
  {
    name: 'a rule of another program that explain does not simulate',
    asks: ['trace', 'client', 'svc/far', '-4'],
    says: [
      /^DROPPED: last seen at node-2/m,
      /dropped at node-2 by nf_tables: table inet other, chain forward, rule with handle \d/,
      /fix: let the other program accept/,
    ],
    inUserspace: [/explain: UNKNOWN/, /because .*table inet other, chain forward, .*rule with handle \d/],
    plant: (cluster) =>
      writeRules(
        nodeNetns(cluster.name, 'node-2'),
        'inet',
        'hook forward',
        'tcp dport 8080 meta length 1-80 drop',
      ),
  },
  LOSES_LARGE_PACKETS,
];

/** Adds a table of another program. Returns how to remove it. */
async function writeRules(netns: string, family: string, hook: string, rule: string): Promise<() => void> {
  const chain = `chain forward {\n type filter ${hook} priority 0; policy accept;\n ${rule}\n }`;
  nft(netns, `table ${family} other {\n ${chain}\n}\n`);
  return () => nft(netns, `delete table ${family} other\n`);
}

function nft(netns: string, input: string): void {
  const { status, stderr } = inNetns(netns, () => spawnSync('nft', ['-f', '-'], { input, encoding: 'utf8' }));
  assert.equal(status, 0, stderr);
}

/**
 * Tests that one command names the cause and the fix of each fault, in each of the modes: in the first one of every fault, in the
 * others of their share, or of all in the full product.
 */
export function testFaults(modes: readonly Mode[]): void {
  let cluster: Cluster;
  before(async () => {
    cluster = await startCluster(['--nodes', '2', '--mode', modes[0] ?? 'nftables']);
    await cluster.apply(OBJECTS);
    await cluster.ask('wait', '--for=condition=Ready', 'pod/client', 'pod/mute', 'pod/far', 'pod/guarded');
    const events = ['get', 'events', '--field-selector', 'reason=Unhealthy', '-o', 'name'];
    await eventually(
      () => cluster.ask(...events),
      (names) => names !== '',
    );
  });
  after(() => cluster?.down());

  for (const [index, mode] of modes.entries()) {
    const rows = ROWS.filter(
      (_, i) => TAKES_FULL_PRODUCT || index === 0 || i % (modes.length - 1) === index - 1,
    );
    describe(`faults in ${mode} mode: one command names the cause and the fix`, () => {
      before(async () => {
        const { status, error } = await cluster.fairlead('mode', mode);
        assert.equal(status, 0, error);
      });
      for (const { name, asks, says, inUserspace = says, plant } of rows) {
        test(name, async () => {
          const address = cluster.state().nodes[0]?.addresses[0] ?? '';
          const undo = await plant?.(cluster);
          try {
            const { out, error } = await cluster.fairlead(
              ...asks.map((word) => word.replace('NODE1', address)),
            );
            for (const pattern of mode === 'userspace' ? inUserspace : says)
              assert.match(out, pattern, error);
          } finally {
            await undo?.();
          }
        });
      }
    });
  }

  // Each mode has its own events of connections.
  for (const mode of TAKES_FULL_PRODUCT ? modes : modes.slice(0, 1)) {
    describe(`flows in ${mode} mode`, () => {
      before(async () => {
        const { status, error } = await cluster.fairlead('mode', mode);
        assert.equal(status, 0, error);
      });

      test('names the policy that denies a name server at once', async () => {
        const reader = startFlows(cluster, 'mute');
        try {
          await reader.ready;
          // A resolver asks again for many seconds.
          const asks = cluster.fairlead('exec', 'mute', '--', 'timeout', '1', 'getent', 'hosts', 'far');
          const shown = await eventually(
            () => reader.entries.find(({ type, verdict }) => type === 'dns' && verdict === 'dropped'),
            (entry) => entry !== undefined,
          );
          assert.match(shown?.reason ?? '', /NetworkPolicy default\/no-dns: no egress rule/);
          await asks;
        } finally {
          reader.stop();
        }
      });

      test('says that a connection makes no progress', async () => {
        const undo = await LOSES_LARGE_PACKETS.plant(cluster);
        let sent: Promise<unknown> | null = null;
        const reader = startFlows(cluster);
        try {
          await reader.ready;
          const send = 'head -c 200000 /dev/zero > /dev/tcp/far/80';
          // It writes more than fits into its socket, until the packets pass.
          sent = cluster.fairlead('exec', 'client', '--', 'timeout', '90', 'bash', '-c', send);
          const shown = await eventually(
            () => reader.entries.find(({ verdict }) => verdict === 'stalled'),
            (entry) => entry !== undefined,
            60_000,
          );
          assert.match(shown?.reason ?? '', /established, then no progress: a full segment of the client/);
          assert.equal(shown?.type === 'flow' ? shown.service?.name : null, 'default/far');
        } finally {
          reader.stop();
          await undo();
          await sent;
        }
      });
    });
  }
}
