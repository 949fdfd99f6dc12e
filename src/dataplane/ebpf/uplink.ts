import type { BpfMap } from '../../kernel/bpf/map.ts';
import { readObject, relocate } from '../../kernel/bpf/object.ts';
import { type BpfProgram, loadProgramAside } from '../../kernel/bpf/program.ts';
import { ConntrackConnection } from '../../kernel/conntrack/connection.ts';
import { FLOW_STATUS } from '../../kernel/conntrack/flow.ts';
import type { NetnsRef } from '../../kernel/netns.ts';
import { PROTOCOL_NUMBER } from '../../kernel/protocol-numbers.ts';
import { listAddresses } from '../../kernel/rtnetlink/addresses.ts';
import { watchNetwork } from '../../kernel/rtnetlink/events.ts';
import { type Link, listLinks, openRouteSocket } from '../../kernel/rtnetlink/links.ts';
import type { IPFamily } from '../../lib/address.ts';
import type { Clock } from '../../lib/clock.ts';
import { hasCode, messageOf } from '../../lib/errors.ts';
import type { Logger } from '../../lib/log.ts';
import type { Change, Frontend, FrontendKey, Packet, ServiceMap } from '../../service/model.ts';
import type { Drift, KernelStep } from '../dataplane.ts';
import type { DeviceWay } from './device-ways.ts';
import { OBJECT } from './generated/uplink.ts';
import { formatMapped } from './kernel-contents.ts';
import { type DeviceHook, HOOKS, mappedAddress } from './layout.ts';
import { pinDirectory } from './pins.ts';
import {
  closeUplinkMaps,
  makeUplinkMaps,
  openUplinkMaps,
  sweepUplinkFlows,
  type UplinkMaps,
} from './uplink-flows.ts';
import { endpointValue, pairOf, stayValue, uplinkConfig, uplinkFlowKey, uplinkKey } from './uplink-layout.ts';
import { isAmbiguous, isForUplink, nodePortAddressesOf, uplinkEndpoints } from './uplink-plan.ts';

export interface UplinkOptions {
  /** Name of the device, or "auto": the one that has the node's own address. */
  readonly device: string;
  readonly families: readonly IPFamily[];
  readonly way: DeviceWay;
  readonly pinPath: string;
  readonly netns: NetnsRef | undefined;
  readonly logger: Logger;
  readonly clock: Clock;
}

/** A frontend as it stands in the maps. */
interface Written {
  readonly key: Uint8Array;
  readonly id: number;
  readonly endpoints: readonly Uint8Array[];
}

const HOOK_NAMES: readonly DeviceHook[] = ['tcxIngress', 'tcxEgress'];
const CONFIG_KEY = new Uint8Array(4);
const NONE = new Uint8Array(4);
const SWEEP_MS = 30_000;

/**
 * Programs at the device that leads outside: they translate what comes from there for endpoints of this node, before
 * nf_tables sees it. Programs and maps are pinned and work on without this process.
 */
export class Uplink {
  readonly #options: UplinkOptions;
  readonly #watch: Disposable & { close(): void };
  #maps: UplinkMaps | null = null;
  #programs: ReadonlyMap<DeviceHook, BpfProgram> | null = null;
  #map: ServiceMap | null = null;
  /** Those that could be carried if nothing else had their addresses. */
  #candidates = new Map<FrontendKey, Frontend>();
  #written = new Map<string, Written>();
  #addresses: ReadonlySet<string> = new Set();
  #nextId = 1;
  /** Index of the device that has the programs. */
  #attached: number | null = null;
  #isMissed = false;
  #cancelSweep = () => {};

  constructor(options: UplinkOptions) {
    this.#options = options;
    const { netns, logger } = options;
    this.#watch = watchNetwork(
      ['link', 'address'],
      (event) => {
        if (!this.#maps || !this.#map || (event.kind === 'link' && !this.#concerns(event.link))) return;
        try {
          if (event.kind !== 'link') this.#readAddresses();
          this.#attach();
        } catch (error) {
          logger.warn({ error: messageOf(error) }, 'the uplink cannot be followed');
        }
      },
      netns,
    );
  }

  /** Makes programs and maps equal to the map, adopting what an earlier process left. */
  async sync(map: ServiceMap): Promise<void> {
    const { pinPath } = this.#options;
    const earlier = this.#maps ?? openUplinkMaps(pinPath);
    const maps = earlier ?? makeUplinkMaps(pinPath);
    this.#maps = maps;
    this.#programs ??= await loadUplinkPrograms(maps);
    this.#adopt(maps);
    this.#map = map;
    this.#candidates = new Map([...map.frontends].filter(([, frontend]) => isForUplink(frontend, map.node)));
    this.#readAddresses();
    if (!earlier) this.#keepDatagrams();
    this.#attach();
    this.#sweepLater();
  }

  /** Applies a change to the map of before. */
  apply(change: Change, map: ServiceMap): void {
    this.#map = map;
    for (const { key, after } of change.frontends) {
      if (after && isForUplink(after, map.node)) this.#candidates.set(key, after);
      else this.#candidates.delete(key);
    }
    this.#update();
  }

  /** What is not as it should be. */
  drifts(): Drift[] {
    const { pinPath, way } = this.#options;
    const maps = this.#maps;
    const device = this.#device();
    if (!maps || !this.#map) return [];
    const object = (what: string) => `bpf: ${pinDirectory(pinPath)}, ${what}`;
    const drifts: Drift[] = HOOK_NAMES.filter(
      (hook) => device !== null && !way.isAttached(device.index, hook),
    ).map((hook) => ({ object: object(`link-uplink-${device?.name}-${hook}`), kind: 'missing' }));
    const config = maps.uplink_config.lookup(CONFIG_KEY);
    if (!config || !sameBytes(config, uplinkConfig(false, this.#map.node.localDetection)))
      drifts.push({ object: object('map-uplink_config'), kind: 'different' });
    const compare = (name: keyof UplinkMaps, wanted: ReadonlyMap<string, Uint8Array>) => {
      const there = new Map(maps[name].entries().map(([key, value]) => [textOf(key), value]));
      for (const [key, value] of wanted) {
        const shown = there.get(key);
        if (!shown) drifts.push({ object: object(`map-${name}`), kind: 'missing' });
        else if (!sameBytes(shown, value)) drifts.push({ object: object(`map-${name}`), kind: 'different' });
      }
      for (const key of there.keys())
        if (!wanted.has(key)) drifts.push({ object: object(`map-${name}`), kind: 'unexpected' });
    };
    const written = [...this.#written.values()];
    compare(
      'uplink_frontends',
      new Map(written.map(({ key, id, endpoints }) => [textOf(key), pairOf(id, endpoints.length)])),
    );
    compare(
      'uplink_endpoints',
      new Map(
        written.flatMap(({ id, endpoints }) =>
          endpoints.map((value, i): [string, Uint8Array] => [textOf(pairOf(id, i)), value]),
        ),
      ),
    );
    compare('uplink_addresses', new Map([...this.#addresses].map((ip) => [textOf(mappedAddress(ip)), NONE])));
    return drifts;
  }

  /** What the programs do with a packet from outside; nothing where they leave it to nf_tables. */
  locate(frontend: Frontend, packet: Packet): KernelStep[] {
    if (packet.sourceClass !== 'external' || this.#attached === null) return [];
    const { address, port, protocol } = frontend;
    const written = this.#written.get(textOf(uplinkKey(frontend)));
    if (!written) return [];
    return [
      {
        object: `bpf: program fl_uplink_in at the uplink, map fl_up_frontends, key ${address ?? 'node port'} port ${port} protocol ${protocol}`,
        effect: `one of ${written.endpoints.length} endpoints of this node (random), which sees the client; the node's nftables see a flow to the endpoint itself`,
      },
    ];
  }

  /** Releases what this process holds; the programs go on. */
  close(): void {
    this.#cancelSweep();
    this.#watch.close();
    this.#options.way.close();
    for (const program of this.#programs?.values() ?? []) program.close();
    if (this.#maps) closeUplinkMaps(this.#maps);
    this.#programs = null;
    this.#maps = null;
    this.#attached = null;
  }

  /** What stands in the maps, whoever wrote it. */
  #adopt(maps: UplinkMaps): void {
    const endpoints = new Map(maps.uplink_endpoints.entries().map(([key, value]) => [textOf(key), value]));
    this.#written = new Map();
    this.#addresses = new Set(maps.uplink_addresses.entries().map(([key]) => formatMapped(key)));
    const used = new Set<string>();
    for (const [key, value] of maps.uplink_frontends.entries()) {
      const [id = 0, count = 0] = new Uint32Array(value.slice().buffer);
      this.#nextId = Math.max(this.#nextId, id + 1);
      const keys = Array.from({ length: count }, (_, i) => textOf(pairOf(id, i)));
      for (const one of keys) used.add(one);
      const found = keys.map((one) => endpoints.get(one) ?? new Uint8Array());
      this.#written.set(textOf(key), { key, id, endpoints: found });
    }
    for (const key of endpoints.keys()) if (!used.has(key)) maps.uplink_endpoints.delete(bytesOfText(key));
  }

  #concerns({ name, index }: Link): boolean {
    return name === this.#options.device || index === this.#attached;
  }

  /** Where node ports answer now; everything follows from there. */
  #readAddresses(): void {
    const maps = this.#maps;
    const map = this.#map;
    if (!maps || !map) return;
    const before = this.#addresses;
    this.#addresses = nodePortAddressesOf(map.node, this.#options.netns);
    this.#update();
    for (const ip of before) if (!this.#addresses.has(ip)) maps.uplink_addresses.delete(mappedAddress(ip));
    for (const ip of this.#addresses)
      if (!before.has(ip)) maps.uplink_addresses.update(mappedAddress(ip), NONE);
  }

  /** Writes what has changed; endpoints before the frontend that leads to them. */
  #update(): void {
    const maps = this.#maps;
    const map = this.#map;
    if (!maps || !map) return;
    const config = uplinkConfig(false, map.node.localDetection);
    const there = maps.uplink_config.lookup(CONFIG_KEY);
    if (!there || !sameBytes(there, config)) maps.uplink_config.update(CONFIG_KEY, config);
    const wanted = this.#wanted(map);
    for (const [text, { key, id, endpoints }] of this.#written) {
      if (wanted.has(text)) continue;
      maps.uplink_frontends.delete(key);
      deleteEndpoints(maps.uplink_endpoints, id, endpoints.length);
      this.#written.delete(text);
    }
    for (const [text, frontend] of wanted) this.#write(maps, text, frontend);
  }

  #wanted(map: ServiceMap): Map<string, Frontend> {
    const wanted = new Map<string, Frontend>();
    for (const frontend of this.#candidates.values()) {
      if (isAmbiguous(frontend, map, this.#addresses)) continue;
      wanted.set(textOf(uplinkKey(frontend)), frontend);
    }
    return wanted;
  }

  #write(maps: UplinkMaps, text: string, frontend: Frontend): void {
    const before = this.#written.get(text);
    const endpoints = uplinkEndpoints(frontend).map(({ ip, port }) => endpointValue(ip, port));
    if (before && sameList(before.endpoints, endpoints)) return;
    const id = this.#nextId++;
    const key = bytesOfText(text);
    try {
      for (const [i, value] of endpoints.entries()) maps.uplink_endpoints.update(pairOf(id, i), value);
      maps.uplink_frontends.update(key, pairOf(id, endpoints.length));
    } catch (error) {
      deleteEndpoints(maps.uplink_endpoints, id, endpoints.length);
      if (!hasCode(error, 'E2BIG')) throw error;
      this.#options.logger.warn({ frontend: frontend.key }, 'no room at the uplink: nftables carries it');
      if (!before) return;
      maps.uplink_frontends.delete(key);
      deleteEndpoints(maps.uplink_endpoints, before.id, before.endpoints.length);
      this.#written.delete(text);
      return;
    }
    this.#written.set(text, { key, id, endpoints });
    if (before) deleteEndpoints(maps.uplink_endpoints, before.id, before.endpoints.length);
  }

  /** Flows of datagrams that nf_tables carries already are to stay with it: only connections say where they begin. */
  #keepDatagrams(): void {
    const { families, netns } = this.#options;
    const maps = this.#maps;
    if (!maps) return;
    const now = process.hrtime.bigint();
    const conntrack = new ConntrackConnection(netns);
    try {
      for (const family of families) {
        const { destinationNat } = FLOW_STATUS;
        const status = { mask: destinationNat, value: destinationNat };
        for (const { original } of conntrack.list(family, { protocol: PROTOCOL_NUMBER.UDP, status })) {
          const client = { ip: original.source, port: original.sourcePort };
          const service = { ip: original.destination, port: original.destinationPort };
          maps.uplink_flows.update(uplinkFlowKey(client, service, 'UDP'), stayValue(now));
        }
      }
    } finally {
      conntrack.close();
    }
  }

  #device(): Link | null {
    const { device, netns } = this.#options;
    using socket = openRouteSocket(netns);
    const links = listLinks(socket);
    if (device !== 'auto') return links.find(({ name, mac }) => name === device && mac !== null) ?? null;
    const own = [this.#map?.node.ipv4, this.#map?.node.ipv6];
    const at = listAddresses(socket).find(({ address }) => own.includes(address))?.device;
    return links.find(({ index, mac }) => index === at && mac !== null) ?? null;
  }

  #attach(): void {
    const { way, logger, device: wanted } = this.#options;
    const device = this.#device();
    if (device === null) {
      if (!this.#isMissed)
        logger.warn(
          { device: wanted, hint: 'name a device of this node in proxy.ebpf.uplink, or "auto"' },
          'proxy.ebpf.uplink: there is no such Ethernet device; nftables carries traffic from outside',
        );
      this.#isMissed = true;
      this.#attached = null;
      return;
    }
    this.#isMissed = false;
    const isThere = this.#attached === device.index;
    if (isThere && HOOK_NAMES.every((hook) => way.isAttached(device.index, hook))) return;
    way.keepOnly(new Set([device.index]));
    // Answers first: what is sent to an endpoint finds its way back.
    for (const hook of ['tcxEgress', 'tcxIngress'] as const) {
      const program = this.#programs?.get(hook);
      if (program) way.attach(device.index, hook, program);
    }
    this.#attached = device.index;
  }

  #sweepLater(): void {
    this.#cancelSweep();
    this.#cancelSweep = this.#options.clock.after(SWEEP_MS, () => {
      if (!this.#maps) return;
      sweepUplinkFlows(this.#maps.uplink_flows, process.hrtime.bigint(), false);
      this.#sweepLater();
    });
  }
}

async function loadUplinkPrograms(maps: UplinkMaps): Promise<Map<DeviceHook, BpfProgram>> {
  const descriptors = new Map(Object.entries(maps).map(([name, map]) => [name, map.fd]));
  const { license, programs } = readObject(Buffer.from(OBJECT, 'base64'));
  const loaded = new Map<DeviceHook, BpfProgram>();
  try {
    for (const program of programs) {
      const hook = HOOKS[program.section];
      if (!hook) continue;
      const instructions = relocate(program, descriptors);
      const { name } = program;
      loaded.set(
        hook.attach as DeviceHook,
        await loadProgramAside({ name, type: 'tc', instructions, license }),
      );
    }
    return loaded;
  } catch (error) {
    for (const program of loaded.values()) program.close();
    throw error;
  }
}

function deleteEndpoints(map: BpfMap, id: number, count: number): void {
  for (let i = 0; i < count; i++) map.delete(pairOf(id, i));
}

const textOf = (bytes: Uint8Array): string => Buffer.from(bytes).toString('latin1');
const bytesOfText = (text: string): Uint8Array => new Uint8Array(Buffer.from(text, 'latin1'));
const sameBytes = (a: Uint8Array, b: Uint8Array): boolean => Buffer.compare(a, b) === 0;
const sameList = (a: readonly Uint8Array[], b: readonly Uint8Array[]): boolean =>
  a.length === b.length && a.every((bytes, i) => sameBytes(bytes, b[i] ?? new Uint8Array()));
