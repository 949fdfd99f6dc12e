import type { Amounts } from '../../kube/quota/amounts.ts';
import { familyOf } from '../../lib/address.ts';
import { FairleadError } from '../../lib/errors.ts';
import type { PodHostPort } from '../../runtime/pod-network.ts';
import type { Traffic } from '../../runtime/traffic-end.ts';
import type { AgentConfiguration, PodsConfiguration } from '../agent-configuration.ts';

/** The version of these messages: raise it with each change that the other side must know. */
export const LINK_VERSION = 2;

/** The parts of an agent's configuration that its pod runtime uses. */
export interface RuntimeConfiguration
  extends Pick<
    AgentConfiguration,
    'nodeName' | 'kubeconfig' | 'server' | 'servers' | 'clusterDomain' | 'stateDir'
  > {
  readonly pods: PodsConfiguration;
  /** Name servers of pods; empty: the node's. */
  readonly clusterDns: readonly string[];
}

/** Notices of the agent. */
export interface AgentNotices {
  /** The first: the runtime connects to the API server. */
  readonly start: {
    readonly version: number;
    readonly configuration: RuntimeConfiguration;
    /** The agent's own, for /flagz. */
    readonly flags: Readonly<Record<string, string>>;
  };
  /** The node's pod network is ready: the runtime adopts the pods of its predecessor, and starts others. */
  readonly open: {
    /** The addresses of the pods that are attached, by uid. */
    readonly addresses: Readonly<Record<string, readonly string[]>>;
    readonly allocatable: Amounts;
    readonly serving: ServingTexts;
    readonly surroundings: Surroundings;
    /** Whether the agent can tell where Services send traffic. */
    readonly knowsTraffic: boolean;
  };
  /** The Node object's allocatable resources have changed. */
  readonly allocatable: Amounts;
  /** The certificate of the HTTPS server, or the authority of its clients, has changed. */
  readonly serving: Partial<ServingTexts>;
}

/** PEM texts; see ServerTls. */
export interface ServingTexts {
  readonly cert: string;
  readonly key: string;
  readonly clientCa: string;
}

/** The cluster around the node, sent with each question "ping". */
export interface Surroundings {
  /** Other nodes' name servers, for times when this node's does not answer. */
  readonly nameServers: readonly string[];
  /** Addresses of the API servers that the agent has learned. */
  readonly apiServers: readonly string[];
}

/** Notices of the runtime. */
export interface RuntimeNotices {
  /** It serves the node's pods. */
  readonly ready: null;
}

/** Questions of the runtime. The uid of a pod never has a slash: those of attachments by container runtimes do. */
export interface RuntimeQuestions {
  readonly attach: {
    readonly uid: string;
    readonly namespace: string;
    readonly name: string;
    readonly hostPorts: readonly PodHostPort[];
    /** A process in the pod's network namespace. */
    readonly pid: number;
  };
  readonly detach: { readonly uid: string };
  readonly collect: { readonly keep: readonly string[] };
  readonly traffic: { readonly addresses: readonly string[] };
  /** Reads the Node object again. */
  readonly refresh: null;
}

/** Answers to the questions of the runtime. */
export interface RuntimeAnswers {
  readonly attach: { readonly ips: string[]; readonly surroundings: Surroundings };
  readonly detach: null;
  readonly collect: { readonly gone: string[] };
  readonly traffic: Traffic;
  /** The node's allocatable resources. */
  readonly refresh: Amounts;
}

/** A question with its name. */
export type RuntimeQuestion = {
  [N in keyof RuntimeQuestions]: { readonly name: N; readonly body: RuntimeQuestions[N] };
}[keyof RuntimeQuestions];

const MAX_KEPT = 4096;
const MAX_HOST_PORTS = 1024;
const MAX_ADDRESSES = 16;
/** A pid_t. */
const MAX_PID = 2 ** 31 - 1;
const UID = /^[0-9A-Za-z._-]{1,253}$/;
/** RFC 1123: names of namespaces and pods. */
const NAME = /^[0-9a-z.-]{1,253}$/;

/** Reads a question of the runtime. Throws FairleadError "bad-request" if it is unknown or malformed. */
export function readQuestion(name: string, body: unknown): RuntimeQuestion {
  const fields = (typeof body === 'object' && body !== null ? body : {}) as Readonly<Record<string, unknown>>;
  switch (name) {
    case 'attach': {
      const { uid, namespace, name: pod, hostPorts, pid } = fields;
      return {
        name,
        body: {
          uid: matching(name, 'uid', uid, UID),
          namespace: matching(name, 'namespace', namespace, NAME),
          name: matching(name, 'name', pod, NAME),
          hostPorts: listOf(name, 'hostPorts', hostPorts, MAX_HOST_PORTS, isHostPort),
          pid: isWhole(pid, 1, MAX_PID) ? pid : refuse(name, 'pid'),
        },
      };
    }
    case 'detach':
      return { name, body: { uid: matching(name, 'uid', fields['uid'], UID) } };
    case 'collect':
      return { name, body: { keep: listOf(name, 'keep', fields['keep'], MAX_KEPT, isUid) } };
    case 'traffic':
      return {
        name,
        body: { addresses: listOf(name, 'addresses', fields['addresses'], MAX_ADDRESSES, isAddress) },
      };
    case 'refresh':
      return { name, body: null };
    default:
      throw new FairleadError(`no such question: ${name.slice(0, 40)}`, {
        op: 'answer the pod runtime',
        code: 'bad-request',
      });
  }
}

const isUid = (value: unknown): value is string => typeof value === 'string' && UID.test(value);
const isAddress = (value: unknown): value is string => typeof value === 'string' && familyOf(value) !== null;
const isWhole = (value: unknown, min: number, max: number): value is number =>
  Number.isSafeInteger(value) && Number(value) >= min && Number(value) <= max;

function isHostPort(value: unknown): value is PodHostPort {
  const { hostIP, protocol, hostPort, containerPort } = (value ?? {}) as Readonly<Record<string, unknown>>;
  return (
    (hostIP === '' || isAddress(hostIP)) &&
    (protocol === 'TCP' || protocol === 'UDP' || protocol === 'SCTP') &&
    isWhole(hostPort, 1, 65_535) &&
    isWhole(containerPort, 1, 65_535)
  );
}

const matching = (name: string, field: string, value: unknown, pattern: RegExp): string =>
  typeof value === 'string' && pattern.test(value) ? value : refuse(name, field);

function listOf<T>(
  name: string,
  field: string,
  value: unknown,
  max: number,
  isItem: (item: unknown) => item is T,
): T[] {
  return Array.isArray(value) && value.length <= max && value.every(isItem) ? value : refuse(name, field);
}

function refuse(name: string, field: string): never {
  throw new FairleadError(`${name}: ${field} is malformed`, {
    op: 'answer the pod runtime',
    code: 'bad-request',
  });
}
