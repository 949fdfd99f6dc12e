import assert from 'node:assert/strict';
import { after, afterEach, before, beforeEach } from 'node:test';
import { manualClock } from '../../../lib/clock.ts';
import type { Frontend, Protocol, ServiceMap } from '../../../service/model.ts';
import { changeBetween, endpoint, frontend, NODE, serviceMap } from '../../testing/service-map.ts';
import { createTopology, type Place, type Topology } from '../../testing/topology.ts';
import { createIpvs } from '../ipvs.ts';
import type { IpvsDataplane, IpvsOptions } from '../options.ts';
import { connectEcho, serveEcho } from './echo.ts';
import { listServers } from './servers.ts';

export const TARGET = 8080;
export const ECHO = 9000;
export const VIP = '10.96.0.50';
export const PLACES: readonly Place[] = ['pod1', 'pod2', 'far'];

/** Makes a topology with servers for the tests of a suite, and a new dataplane in IPVS mode for each of them. */
export function serverScene() {
  let topology: Topology;
  let dataplane: IpvsDataplane;
  let map: ServiceMap;
  const clock = manualClock(1_000_000);
  const open: { destroy(): void }[] = [];
  const servers: { close(): void }[] = [];

  before(async () => {
    topology = createTopology();
    for (const place of PLACES) {
      await topology.serve(place, TARGET);
      servers.push(serveEcho(topology, place, ECHO));
    }
  });
  beforeEach(() => start());
  afterEach(async () => {
    for (const socket of open.splice(0)) socket.destroy();
    await dataplane.remove();
    await dataplane.close();
  });
  after(() => {
    for (const server of servers) server.close();
    topology?.close();
  });

  function start(options: Partial<IpvsOptions> = {}): void {
    dataplane = createIpvs({
      families: ['ipv4', 'ipv6'],
      netns: topology.namespace('node'),
      clock,
      ...options,
    });
    map = serviceMap([]);
  }

  async function sync(frontends: readonly Frontend[], node = NODE) {
    map = serviceMap(frontends, node);
    return await dataplane.sync(map);
  }

  async function apply(frontends: readonly Frontend[]) {
    const next = serviceMap(frontends);
    const report = await dataplane.apply(changeBetween(map, next), next);
    map = next;
    assert.deepEqual(report.failed, []);
    assert.deepEqual(await dataplane.verify(), []);
    return report;
  }

  const at = (port: number, ...places: Place[]) =>
    places.map((place) => endpoint(topology.address(place, 'ipv4'), port, place !== 'far'));

  function clusterIP(
    places: readonly Place[],
    more: { protocol?: Protocol; port?: number; target?: number; spared?: readonly Place[] } = {},
  ) {
    const { protocol = 'TCP', port = 80, target = TARGET } = more;
    const endpoints = at(target, ...places);
    const spared = at(target, ...(more.spared ?? []));
    return frontend({ kind: 'ClusterIP', service: 'web', address: VIP, port, protocol, endpoints, spared });
  }

  const withScheduler = (f: Frontend, ipvsScheduler: string): Frontend => ({
    ...f,
    options: { ...f.options, ipvsScheduler },
  });

  const list = () => listServers(topology);
  const ask = async (from: Place, address = VIP, port = 80, protocol: 'TCP' | 'UDP' = 'TCP') =>
    (await topology.ask(from, protocol, address, port)).split(' ')[0];

  async function connect(from: Place, address: string, port: number) {
    const connection = await connectEcho(topology, from, address, port);
    open.push(connection);
    return connection;
  }

  return {
    clock,
    open,
    start,
    sync,
    apply,
    at,
    clusterIP,
    withScheduler,
    list,
    ask,
    connect,
    get topology() {
      return topology;
    },
    get dataplane() {
      return dataplane;
    },
    get map() {
      return map;
    },
  };
}
