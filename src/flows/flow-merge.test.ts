import assert from 'node:assert/strict';
import { describe, test } from 'node:test';
import type { FlowEvent, FlowEventKind } from '../dataplane/flow-event.ts';
import { hostPort, type SocketAddress } from '../lib/address.ts';
import { createPolicyTable } from '../policy/policy-table.ts';
import { fill, namespace, pod, policy, withLabels } from '../policy/testing/policy-objects.ts';
import { compile } from '../service/compile.ts';
import { webService, webSlice } from '../service/testing/objects.ts';
import { testNode } from '../service/testing/test-node.ts';
import type { ConnectionOutcome, SeenConnection } from './connection-table.ts';
import type { FlowsEntry } from './flow-line.ts';
import { createFlowMerge } from './flow-merge.ts';

const CLIENT = '10.244.1.9:4000';
const VIP = '10.96.0.1:80';
const POD = '10.244.1.2:8080';
const GUARDED = '10.244.1.3:80';
const LOCKED = '10.244.1.4:80';

const map = compile({
  node: testNode(),
  services: [
    webService({ ports: [{ name: 'http', port: 80, targetPort: 8080 }] }),
    webService({ clusterIP: '10.96.0.2', clusterIPs: ['10.96.0.2'] }, { name: 'empty' }),
  ],
  slices: [webSlice(['10.244.1.2 @node-1'])],
});
const policies = createPolicyTable('node-1');
fill(policies, {
  namespaces: [namespace('locked')],
  pods: [
    pod({ key: 'x/guarded', labels: 'app=guarded', ips: ['10.244.1.3'] }),
    pod({ key: 'locked/a', ips: ['10.244.1.4'] }),
  ],
  clusterPolicies: [
    {
      kind: 'ClusterNetworkPolicy',
      object: {
        metadata: { name: 'lock' },
        spec: {
          tier: 'Admin',
          subject: { namespaces: withLabels('kubernetes.io/metadata.name=locked') },
          ingress: [
            { action: 'Accept', from: [{ namespaces: withLabels('a=b') }] },
            { action: 'Deny', from: [{ networks: ['0.0.0.0/0'] }] },
          ],
        },
      },
    },
  ],
  policies: [policy('none', { podSelector: withLabels('app=guarded'), policyTypes: ['Ingress'] })],
});

const end = (text: string): SocketAddress => {
  const [ip = '', port] = text.split(':');
  return { ip, port: Number(port) };
};
const event = (
  kind: FlowEventKind,
  endpoint = POD,
  proxy: string | null = null,
  client = CLIENT,
): FlowEvent => ({
  ...{ kind, protocol: 'TCP', client: end(client), service: end(VIP), endpoint: end(endpoint) },
  ...{ proxy: proxy === null ? null : end(proxy), micros: 100, at: 0n },
});
/** Before the client's socket has a port. */
const REJECTED: FlowEvent = {
  ...{ ...event('rejected'), client: end('10.244.1.9:0'), service: end('10.96.0.2:80'), endpoint: null },
};
const seen = (
  outcome: ConnectionOutcome,
  destination: string,
  { endpoint = destination, isOwn = false, client = CLIENT, cause = null as string | null } = {},
): SeenConnection => ({
  ...{ outcome, client: end(client), destination: end(destination), endpoint: end(endpoint), isOwn, cause },
  ...{ micros: 100, beganNs: 0n },
});

interface Row {
  readonly name: string;
  readonly inputs: readonly (FlowEvent | SeenConnection)[];
  readonly lines: readonly string[];
}

const rows: Row[] = [
  {
    name: 'a connection that the mode reports and its packets show: once',
    inputs: [event('established'), seen('answered', VIP, { endpoint: POD })],
    lines: ['established delivered default/web:http 10.244.1.2:8080'],
  },
  {
    name: 'one that is translated at the socket, so that its packets do not show the Service: once',
    inputs: [event('established'), seen('answered', POD)],
    lines: ['established delivered default/web:http 10.244.1.2:8080'],
  },
  {
    name: "the proxy's own connection to the endpoint: not shown",
    inputs: [
      event('established', POD, '192.168.0.1:5000'),
      seen('answered', POD, { isOwn: true, client: '192.168.0.1:5000' }),
    ],
    lines: ['established delivered default/web:http 10.244.1.2:8080'],
  },
  {
    name: 'a pod that is addressed itself',
    inputs: [seen('answered', POD)],
    lines: ['established delivered - 10.244.1.2:8080'],
  },
  { name: 'a probe of the node: not shown', inputs: [seen('refused', POD, { isOwn: true })], lines: [] },
  {
    name: 'a Service without endpoints',
    inputs: [seen('refused', '10.96.0.2:80', { cause: 'ICMP port unreachable' })],
    lines: ['rejected rejected default/empty:http - the Service has no ready endpoints'],
  },
  {
    name: 'the same in a program at the socket, twice: each is shown',
    inputs: [REJECTED, REJECTED],
    lines: [
      'rejected rejected default/empty:http - the Service has no ready endpoints',
      'rejected rejected default/empty:http - the Service has no ready endpoints',
    ],
  },
  {
    name: 'a refusal of the endpoint itself',
    inputs: [seen('refused', POD, { cause: 'RST' })],
    lines: ['reset rejected - 10.244.1.2:8080 RST: nothing listens on port 8080'],
  },
  {
    name: 'a port that the Service does not have',
    inputs: [seen('refused', '10.96.0.1:81', { cause: 'ICMP port unreachable' })],
    lines: ['rejected rejected - 10.96.0.1:81 the Service has no such port'],
  },
  {
    name: 'a cluster IP of no Service',
    inputs: [seen('unanswered', '10.96.0.99:80')],
    lines: ['dropped dropped - 10.96.0.99:80 no Service has this cluster IP'],
  },
  {
    name: 'a pod that a policy isolates',
    inputs: [seen('unanswered', GUARDED)],
    lines: [
      'dropped dropped - 10.244.1.3:80 NetworkPolicy x/none: no ingress rule of pod x/guarded allows it',
    ],
  },
  {
    name: 'the same, reported by the mode',
    inputs: [event('timeout', GUARDED)],
    lines: [
      'timeout dropped default/web:http 10.244.1.3:80 NetworkPolicy x/none: no ingress rule of pod x/guarded allows it',
    ],
  },
  {
    name: 'a pod that a policy of the whole cluster denies',
    inputs: [seen('unanswered', LOCKED)],
    lines: [
      'dropped dropped - 10.244.1.4:80 ClusterNetworkPolicy lock (tier Admin): rule spec.ingress[1] denies it at pod locked/a',
    ],
  },
  {
    name: 'no answer that connection tracking reports again, minutes later: once',
    inputs: [seen('unanswered', VIP, { endpoint: POD }), event('timeout')],
    lines: ['timeout no-answer default/web:http 10.244.1.2:8080'],
  },
  {
    name: 'a reset of an established connection',
    inputs: [
      event('established'),
      event('closed'),
      seen('reset', VIP, { endpoint: POD, cause: 'by the server' }),
    ],
    lines: [
      'established delivered default/web:http 10.244.1.2:8080',
      'closed default/web:http 10.244.1.2:8080',
      'aborted reset default/web:http 10.244.1.2:8080 by the server',
    ],
  },
  {
    name: "a client's connection that the proxy resets because the endpoint refuses: once",
    inputs: [event('reset', POD, '192.168.0.1:5000'), seen('reset', VIP, { cause: 'by the server' })],
    lines: ['reset rejected default/web:http 10.244.1.2:8080 RST: nothing listens on port 8080'],
  },
];

describe('flows of the mode and of the packets', () => {
  for (const { name, inputs, lines } of rows) {
    test(name, () => {
      const found: string[] = [];
      const emit = (entry: FlowsEntry) => {
        if (entry.type !== 'flow') return;
        const { kind, verdict, service, endpoint, reason } = entry;
        const words = [kind, verdict, service?.name ?? '-', endpoint ? hostPort(endpoint) : '-', reason];
        found.push(words.filter((word) => word !== null).join(' '));
      };
      const tables = () => ({ map, policies });
      const merge = createFlowMerge({ tables, now: () => 0, monotonic: () => 0n, emit });
      for (const input of inputs) {
        if ('kind' in input) merge.event(input);
        else merge.connection(input);
      }
      assert.deepEqual(found, lines);
    });
  }
});
