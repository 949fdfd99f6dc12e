import assert from 'node:assert/strict';
import { after, before, describe, test } from 'node:test';
import type { Dataplane } from '../../dataplane/dataplane.ts';
import type { FlowEvent } from '../../dataplane/flow-event.ts';
import { endpoint, frontend, serviceMap } from '../../dataplane/testing/service-map.ts';
import { createTopology, SILENCE_MS, type Topology } from '../../dataplane/testing/topology.ts';
import { ConntrackConnection } from '../../kernel/conntrack/connection.ts';
import type { IPFamily } from '../../lib/address.ts';
import { eventually } from '../../lib/testing/eventually.ts';
import type { Frontend } from '../../service/model.ts';
import { watchTrackedFlows } from '../tracked-flows.ts';

const FAMILIES: readonly IPFamily[] = ['ipv4', 'ipv6'];
const TARGET = 8080;
/** A port without a listener. */
const CLOSED = 8099;

const vip = (family: IPFamily) => (family === 'ipv4' ? '10.96.0.60' : 'fd00:96::60');

/** Tests the events of flows through a Service in one mode. */
export function testFlowEvents(
  mode: string,
  create: (options: { readonly families: readonly IPFamily[]; readonly netns: string }) => Dataplane,
): void {
  describe(`flow events in ${mode} mode`, () => {
    let topology: Topology;
    let dataplane: Dataplane;
    let watch: { close(): void } | null = null;
    let events: FlowEvent[] = [];

    before(async () => {
      topology = createTopology();
      await topology.serve('pod1', TARGET);
      const netns = topology.namespace('node');
      dataplane = create({ families: FAMILIES, netns });
      const onEvent = (event: FlowEvent) => events.push(event);
      watch =
        dataplane.abilities.flows?.watch(onEvent) ??
        watchTrackedFlows({ netns, monotonic: () => process.hrtime.bigint(), onEvent });
    });
    after(async () => {
      watch?.close();
      await dataplane?.close();
      topology?.close();
    });

    const service = (
      family: IPFamily,
      protocol: 'TCP' | 'UDP',
      port: number,
      ip = topology.address('pod1', family),
    ): Frontend =>
      frontend({
        kind: 'ClusterIP',
        service: 'web',
        address: vip(family),
        port: 80,
        protocol,
        endpoints: [endpoint(ip, port)],
      });

    const rows = [
      {
        what: 'an answered connection',
        protocol: 'TCP',
        port: TARGET,
        kinds: ['established', 'closed'],
      },
      { what: 'a refused connection', protocol: 'TCP', port: CLOSED, kinds: ['reset'] },
      { what: 'datagrams', protocol: 'UDP', port: TARGET, kinds: ['chosen'] },
    ] as const;
    for (const family of FAMILIES) {
      for (const { what, protocol, port, kinds } of rows) {
        test(`${family}: ${what}`, async () => {
          await dataplane.sync(serviceMap([service(family, protocol, port)]));
          events = [];
          await topology.ask('pod3', protocol, vip(family), 80);
          for (let i = 0; i < 250 && events.length < kinds.length; i++) {
            await new Promise((resolve) => setTimeout(resolve, 20));
          }
          assert.deepEqual(
            events.map(({ kind }) => kind),
            kinds,
          );
          for (const event of events) {
            assert.equal(event.protocol, protocol);
            assert.equal(event.client.ip, topology.address('pod3', family));
            assert.ok(event.client.port > 0);
            assert.deepEqual(event.service, { ip: vip(family), port: 80 });
            assert.deepEqual(event.endpoint, { ip: topology.address('pod1', family), port });
          }
        });
      }
    }

    // The proxy of the userspace mode knows itself whether an endpoint answers.
    for (const family of mode === 'userspace' ? [] : FAMILIES) {
      test(`${family}: an unanswered connection whose entry is deleted early, as failover does`, async () => {
        const silent = family === 'ipv4' ? '10.244.2.99' : 'fd00:244:2::99';
        const gateway = family === 'ipv4' ? '192.0.2.30' : 'fd00:2::30';
        topology.configure('far', `route add blackhole ${silent}`);
        topology.configure('node', `route add ${silent} via ${gateway} dev eth1`);
        const conntrack = new ConntrackConnection(topology.namespace('node'));
        try {
          await dataplane.sync(serviceMap([service(family, 'TCP', TARGET, silent)]));
          events = [];
          const asked = topology.ask('pod3', 'TCP', vip(family), 80, undefined, SILENCE_MS);
          const [flow] = await eventually(
            () =>
              conntrack
                .list(family, { destination: vip(family) })
                .filter(({ reply }) => reply.source === silent),
            ({ length }) => length > 0,
          );
          assert.ok(flow);
          await conntrack.delete([flow]);
          await eventually(
            () => events.length,
            (count) => count > 0,
          );
          assert.deepEqual(
            events.map(({ kind }) => kind),
            ['timeout'],
          );
          assert.equal(await asked, 'silence');
        } finally {
          conntrack.close();
          topology.configure('far', `route del blackhole ${silent}`);
          topology.configure('node', `route del ${silent}`);
        }
      });
    }
  });
}
