import { chmodSync, mkdirSync, rmSync, type Stats, statfsSync, statSync } from 'node:fs';
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
import { LOOPBACK_TYPE } from './installation.ts';
import { addResult, addressesOf, loopbackResult } from './result.ts';
import {
  CNI_CODE,
  type CniAnswer,
  type CniConfig,
  CniError,
  type CniFailure,
  type CniPortMapping,
  type CniRequest,
  readConfig,
} from './specification.ts';

export interface CniServerOptions {
  /** The socket's path; only root may use it. */
  readonly path: string;
  readonly network: NodeNetwork;
  readonly pods: PodNetwork;
  readonly logger: Logger;
}

const MAX_REQUEST_BYTES = 4 << 20;

/** Executes the calls of the CNI plugin on this node; calls for the same interface are serialized. */
export function serveCni(options: CniServerOptions): { close(): void } {
  const { path, logger } = options;
  mkdirSync(dirname(path), { recursive: true, mode: 0o700 });
  // Left by an agent that was killed; only one agent uses a state folder.
  rmSync(path, { force: true });
  const open = new Set<Socket>();
  /** The last task of each attachment; the next one waits for it. */
  const lastTasks = new Map<string, Promise<unknown>>();
  const oneAtATime = async (key: string, work: () => Promise<CniAnswer>): Promise<CniAnswer> => {
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
  const server = createServer((socket) => {
    open.add(socket);
    socket.on('close', () => open.delete(socket));
    socket.on('error', () => socket.destroy());
    let text = '';
    socket.setEncoding('utf8').on('data', (chunk: string) => {
      text += chunk;
      if (text.length > MAX_REQUEST_BYTES) socket.destroy();
      const end = text.indexOf('\n');
      if (end < 0) return;
      const line = text.slice(0, end);
      text = '';
      const request = parseRequest(line);
      const reply = (answer: CniAnswer) => {
        socket.end(`${JSON.stringify(answer)}\n`);
      };
      if (!request) {
        reply({
          error: {
            code: CNI_CODE.undecodable,
            msg: 'the request is not a line of JSON with containerId and ifname',
          },
        });
        return;
      }
      // GC concerns all attachments and waits for none: an attachment being added is on its list, or newer.
      oneAtATime(`${request.containerId} ${request.ifname}`, () => carryOut(options, request)).then(
        reply,
        (error) => {
          const failure = failureOf(error);
          logger.warn(
            { command: request.command, container: request.containerId, code: failure.code },
            failure.msg,
          );
          reply({ error: failure });
        },
      );
    });
  });
  server.on('error', (error) => logger.error({ err: error, path }, 'the CNI socket is closed'));
  server.listen(path, () => chmodSync(path, 0o600));
  return {
    close() {
      server.close();
      for (const socket of open) socket.destroy();
    },
  };
}

/**
 * Parses a request; returns null if the line is not a JSON object with an identifier of a container and an
 * interface.
 */
function parseRequest(line: string): CniRequest | null {
  try {
    const request = JSON.parse(line) as Partial<CniRequest> | null;
    const isNamed = typeof request?.containerId === 'string' && typeof request.ifname === 'string';
    return isNamed ? (request as CniRequest) : null;
  } catch (error) {
    if (error instanceof SyntaxError) return null;
    throw error;
  }
}

async function carryOut(options: CniServerOptions, request: CniRequest): Promise<CniAnswer> {
  const { pods, network } = options;
  const config = readConfig(request.config);
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
      return {
        result: addResult(network, config, { uid, ips, ifname: request.ifname, netns: request.netns }),
      };
    }
    case 'DEL':
      await pods.detach(uid);
      return { result: null };
    case 'CHECK':
      check(options, request, config, uid);
      return { result: null };
    case 'GC': {
      const valid = config.validAttachments.map(({ containerID, ifname }) =>
        attachmentUid(config.name, containerID, ifname),
      );
      await pods.collect(new Set(valid), attachmentPrefix(config.name));
      return { result: null };
    }
    case 'STATUS':
      return { result: null };
    default:
      throw new CniError(
        CNI_CODE.badEnvironment,
        `CNI_COMMAND ${JSON.stringify(request.command)} is unknown`,
      );
  }
}

/** Executes a call of the loopback plugin, which sets `lo` up; containerd calls it for each sandbox. */
function loopback(request: CniRequest, config: CniConfig, node: NetnsRef | undefined): CniAnswer {
  if (request.command !== 'ADD' && request.command !== 'CHECK') return { result: null };
  using inside = openRouteSocket(containerNetns(request.netns, node));
  const lo = getLink(inside, 'lo');
  if (request.command === 'CHECK') {
    if (!lo.up) throw new CniError(CNI_CODE.broken, "the container's network is broken: lo is down");
    return { result: null };
  }
  setLink(inside, lo.index, { up: true });
  const addresses = listAddresses(inside, { device: lo.index });
  return {
    result: loopbackResult(
      config.cniVersion,
      addresses.map(({ address, prefix }) => `${address}/${prefix}`),
      request.netns,
    ),
  };
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
