import { chmodSync, mkdirSync, rmSync, type Stats, statfsSync, statSync, writeFileSync } from 'node:fs';
import { createServer, type Socket } from 'node:net';
import { dirname } from 'node:path';
import type { NetnsRef } from '../../kernel/netns.ts';
import { netnsPath } from '../../kernel/netns.ts';
import { listAddresses } from '../../kernel/rtnetlink/addresses.ts';
import { getLink, openRouteSocket, setLink } from '../../kernel/rtnetlink/links.ts';
import { familyOf } from '../../lib/address.ts';
import { FairleadError, hasCode, messageOf } from '../../lib/errors.ts';
import type { Logger } from '../../lib/log.ts';
import type { HostPort } from '../host-ports.ts';
import type { NodeNetwork } from '../node-network.ts';
import type { PodNetwork } from '../pod-network.ts';
import { answerCall, type CniAnswer, encodeAnswer, parseCall } from './call.ts';
import { LOOPBACK_TYPE } from './installation.ts';
import { addResult, addressesOf, loopbackResult } from './result.ts';
import {
  CNI_CODE,
  type CniConfig,
  CniError,
  type CniFailure,
  type CniPortMapping,
  type CniRequest,
} from './specification.ts';

export interface CniServerOptions {
  /** The socket's path; only root may use it. */
  readonly path: string;
  readonly network: NodeNetwork;
  readonly pods: PodNetwork;
  readonly logger: Logger;
}

/** The socket's name in the agent's state folder. */
export const CNI_SOCKET = 'cni.sock';
const MAX_CALL_BYTES = 4 << 20;
/** The plugin's STATUS succeeds for some minutes after this file was last renewed. */
const READY_SUFFIX = '.ready';
const RENEWAL_MS = 60_000;

/** Executes the calls of the CNI plugin on this node; calls for the same interface are serialized. */
export function serveCni(options: CniServerOptions): { close(): void } {
  const { path, logger } = options;
  mkdirSync(dirname(path), { recursive: true, mode: 0o700 });
  // Left by an agent that was killed; only one agent uses a state folder.
  rmSync(path, { force: true });
  const open = new Set<Socket>();
  /** The last task of each attachment; the next one waits for it. */
  const lastTasks = new Map<string, Promise<unknown>>();
  const oneAtATime = async <T>(key: string, work: () => Promise<T>): Promise<T> => {
    const before = lastTasks.get(key);
    const mine = (async () => {
      await before;
      return await work();
    })();
    lastTasks.set(key, mine);
    try {
      return await mine;
    } finally {
      if (lastTasks.get(key) === mine) lastTasks.delete(key);
    }
  };
  const answer = (bytes: Buffer): Promise<CniAnswer> => {
    const call = parseCall(bytes);
    if (!call) return Promise.resolve({ output: 'not a call of the CNI plugin\n', status: 1 });
    const { CNI_CONTAINERID: container = '', CNI_IFNAME: ifname = '' } = call.environment;
    const failed = (error: unknown, command: string) => {
      const failure = failureOf(error);
      logger.warn({ command, container, code: failure.code }, failure.msg);
      return failure;
    };
    // GC concerns all attachments and waits for none: an attachment being added is on its list, or newer.
    return oneAtATime(`${container} ${ifname}`, () =>
      answerCall(call, (request) => carryOut(options, request), failed),
    );
  };
  // The plugin ends its side after the call.
  const server = createServer({ allowHalfOpen: true }, (socket) => {
    open.add(socket);
    socket.on('close', () => open.delete(socket));
    socket.on('error', () => socket.destroy());
    const chunks: Buffer[] = [];
    let size = 0;
    socket.on('data', (chunk: Buffer) => {
      size += chunk.length;
      chunks.push(chunk);
      if (size > MAX_CALL_BYTES) socket.destroy();
    });
    socket.on('end', () => {
      void answer(Buffer.concat(chunks)).then((one) => socket.end(encodeAnswer(one)));
    });
  });
  server.on('error', (error) => logger.error({ err: error, path }, 'the CNI socket is closed'));
  const renew = () => {
    try {
      writeFileSync(path + READY_SUFFIX, '');
    } catch (error) {
      logger.warn({ err: error }, 'cannot renew the file for the CNI command STATUS');
    }
  };
  server.listen(path, () => {
    chmodSync(path, 0o600);
    renew();
  });
  const renewal = setInterval(renew, RENEWAL_MS);
  renewal.unref();
  return {
    close() {
      clearInterval(renewal);
      if (server.listening) renew();
      server.close();
      for (const socket of open) socket.destroy();
    },
  };
}

/** Removes what a server leaves for the plugin. */
export function removeCniSocket(path: string): void {
  for (const file of [path, path + READY_SUFFIX]) rmSync(file, { force: true });
}

async function carryOut(options: CniServerOptions, request: CniRequest): Promise<object | null> {
  const { pods, network } = options;
  const { config } = request;
  if (config.type === LOOPBACK_TYPE) return loopback(request, config, network.netns);
  const uid = attachmentUid(config.name, request.containerId, request.ifname);
  switch (request.command) {
    case 'ADD': {
      if (config.prevResult !== undefined) {
        throw new CniError(
          CNI_CODE.badConfiguration,
          'prevResult: this plugin creates the interface, so it must be the first of its list',
        );
      }
      const netns = containerNetns(request.netns, network.netns);
      const pod = podOf(request);
      const hostPorts = (config.runtimeConfig?.portMappings ?? []).flatMap(hostPortOf);
      const { ips } = await pods.attach({ uid, ...pod, hostPorts, device: request.ifname }, netns);
      return addResult(network, config, { uid, ips, ifname: request.ifname, netns: request.netns });
    }
    case 'DEL':
      await pods.detach(uid);
      return null;
    case 'CHECK':
      check(options, request, config, uid);
      return null;
    case 'GC': {
      const valid = config.validAttachments.map(({ containerID, ifname }) =>
        attachmentUid(config.name, containerID, ifname),
      );
      await pods.collect(new Set(valid), attachmentPrefix(config.name));
      return null;
    }
    case 'STATUS':
      return null;
    default:
      throw new CniError(
        CNI_CODE.badEnvironment,
        `CNI_COMMAND ${JSON.stringify(request.command)} is unknown`,
      );
  }
}

/** Executes a call of the loopback plugin, which sets `lo` up; containerd calls it for each sandbox. */
function loopback(request: CniRequest, config: CniConfig, node: NetnsRef | undefined): object | null {
  if (request.command !== 'ADD' && request.command !== 'CHECK') return null;
  using inside = openRouteSocket(containerNetns(request.netns, node));
  const lo = getLink(inside, 'lo');
  if (request.command === 'CHECK') {
    if (!lo.up) throw new CniError(CNI_CODE.broken, "the container's network is broken: lo is down");
    return null;
  }
  setLink(inside, lo.index, { up: true });
  const addresses = listAddresses(inside, { device: lo.index });
  return loopbackResult(
    config.cniVersion,
    addresses.map(({ address, prefix }) => `${address}/${prefix}`),
    request.netns,
  );
}

function check({ pods }: CniServerOptions, request: CniRequest, config: CniConfig, uid: string): void {
  if (config.prevResult === undefined) {
    throw new CniError(CNI_CODE.badConfiguration, 'CHECK requires prevResult');
  }
  const broken = (why: string) => new CniError(CNI_CODE.broken, `the container's network is broken: ${why}`);
  const ips = pods.addresses(uid);
  if (!ips) throw broken('unknown container');
  const expected = addressesOf(config.prevResult, request.ifname);
  if (ips.join() !== expected.join()) {
    throw broken(`it has ${ips.join(', ')}, not ${expected.join(', ') || 'no address'}`);
  }
  const problem = pods.problem(uid, { path: request.netns }, request.ifname);
  if (problem !== null) throw broken(problem);
}

/** With a slash, which is never part of a pod's uid. */
const attachmentPrefix = (network: string) => `cni/${network}/`;
const attachmentUid = (network: string, containerId: string, ifname: string) =>
  `${attachmentPrefix(network)}${containerId}/${ifname}`;

/** Opens the container's namespace, which must exist and must not be that of the node. */
function containerNetns(path: string, node: NetnsRef | undefined): { path: string } {
  let found: Stats | undefined;
  try {
    found = statSync(path, { throwIfNoEntry: false });
  } catch (error) {
    throw new CniError(CNI_CODE.badEnvironment, `CNI_NETNS: cannot reach ${path}: ${messageOf(error)}`);
  }
  if (!found) throw new CniError(CNI_CODE.unknownContainer, `CNI_NETNS: ${path} does not exist`);
  if (!isNamespace(path)) {
    throw new CniError(
      CNI_CODE.badEnvironment,
      `CNI_NETNS: ${path} is not a network namespace`,
      'its mount is not visible where the agent runs: mount the folder with propagation HostToContainer',
    );
  }
  const own = statSync(node === undefined ? '/proc/thread-self/ns/net' : netnsPath(node));
  if (found.ino === own.ino && found.dev === own.dev) {
    throw new CniError(CNI_CODE.badEnvironment, `CNI_NETNS: ${path} is the node's own network namespace`);
  }
  return { path };
}

/** A namespace is a file of nsfs (linux/magic.h: NSFS_MAGIC); an unmounted mount point is an empty file. */
const isNamespace = (path: string) => statfsSync(path).type === NSFS_MAGIC;
const NSFS_MAGIC = 0x6e736673;

/** Returns the pod in CNI_ARGS, as set by container runtimes for kubelets. */
function podOf({ args, containerId }: CniRequest): { namespace: string; name: string } {
  const fields = new Map(args.split(';').map((pair) => pair.split('=', 2) as [string, string]));
  return {
    namespace: fields.get('K8S_POD_NAMESPACE') ?? 'cni',
    name: fields.get('K8S_POD_NAME') ?? containerId,
  };
}

function hostPortOf(mapping: CniPortMapping): HostPort[] {
  const fields = new Map(Object.entries(mapping).map(([name, value]) => [name.toLowerCase(), value]));
  const port = (name: string) => {
    const value = fields.get(name.toLowerCase()) ?? 0;
    if (typeof value === 'number' && Number.isInteger(value) && value >= 0 && value < 65_536) return value;
    throw badMapping(`${name} ${JSON.stringify(value)} is not a port`);
  };
  const hostPort = port('hostPort');
  // Runtimes list ports without a host port with hostPort 0.
  if (hostPort === 0) return [];
  const containerPort = port('containerPort');
  if (containerPort === 0) throw badMapping('containerPort is missing');
  const protocol = String(fields.get('protocol') || 'tcp').toUpperCase();
  if (protocol !== 'TCP' && protocol !== 'UDP' && protocol !== 'SCTP')
    throw badMapping(`protocol ${protocol} is not supported`);
  const hostIP = String(fields.get('hostip') ?? '');
  if (hostIP !== '' && familyOf(hostIP) === null)
    throw badMapping(`hostIP ${JSON.stringify(hostIP)} is not an address`);
  return [{ hostIP, protocol, hostPort, containerPort }];
}

const badMapping = (problem: string) =>
  new CniError(CNI_CODE.unsupportedField, `runtimeConfig.portMappings: ${problem}`);

function failureOf(error: unknown): CniFailure {
  if (error instanceof CniError) {
    const { code, message: msg, details } = error;
    return { code, msg, ...(details ? { details } : {}) };
  }
  const known: Readonly<Record<string, number>> = {
    NodePorts: CNI_CODE.portTaken,
    'addresses-exhausted': CNI_CODE.exhausted,
    EBUSY: CNI_CODE.tryAgain,
    ENOENT: CNI_CODE.unknownContainer,
  };
  const code =
    error instanceof FairleadError || hasCode(error, 'ENOENT') ? (error as { code: string }).code : '';
  const details = error instanceof FairleadError ? error.hint : undefined;
  return { code: known[code] ?? CNI_CODE.io, msg: messageOf(error), ...(details ? { details } : {}) };
}
