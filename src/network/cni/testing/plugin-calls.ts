import assert from 'node:assert/strict';
import { execFileSync } from 'node:child_process';
import { mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterEach, beforeEach } from 'node:test';
import { NETNS_DIR, spawnInNetns } from '../../../kernel/netns.ts';
import { listLinks } from '../../../kernel/rtnetlink/links.ts';
import { silentLogger } from '../../../lib/log.ts';
import { NodeNetwork } from '../../node-network.ts';
import { openPodNetwork, type PodNetwork } from '../../pod-network.ts';
import { netnsOf, testNode, testPodCidrs, testTopology, Undo } from '../../testing/packets.ts';
import type { Topology } from '../../topology.ts';
import { serveCni } from '../cni-server.ts';
import { pluginProgram } from '../plugin-program.ts';

/** The folder of the reference plugins on Debian. */
export const DEBIAN = '/usr/lib/cni';

export interface Outcome {
  readonly status: number;
  // biome-ignore lint/suspicious/noExplicitAny: tests read into the fields that they expect
  readonly answer: any;
}

/** A plugin's program and its first arguments. */
export type Program = readonly [string, ...string[]];

/**
 * A node, new for every test, with the part of an agent that the plugin needs. The plugin is called as
 * container runtimes call it: a process, with variables and standard input.
 */
export interface PluginNode {
  readonly undo: Undo;
  readonly topology: Topology;
  /** Its network namespace. */
  readonly netns: string;
  readonly folder: string;
  readonly socket: string;
  readonly pods: PodNetwork;
  /** The plugin with this node's socket. */
  readonly plugin: Program;
  stopAgent(): void;
  /** Starts the agent again after `stopAgent`. */
  startAgent(): void;
  /** Runs a plugin inside the node's namespace, as the runtime there does. */
  call(program: Program, environment: Record<string, string>, config: object | string): Promise<Outcome>;
  /** Returns the configuration of Fairlead's plugin. */
  config(more?: object): object;
  /**
   * Calls Fairlead's plugin for a container; `netns`: its network namespace; default: the one with the same
   * name.
   */
  ours(command: string, container: string, more?: object, netns?: string): Promise<Outcome>;
  /** Calls ADD, which has to succeed. Returns its result. */
  add(container: string, more?: object): Promise<Outcome['answer']>;
  /** Returns the node's ends of the pods' links. */
  ports(): string[];
}

export const environment = (command: string, container: string, netns = container) => ({
  CNI_COMMAND: command,
  CNI_CONTAINERID: container,
  CNI_NETNS: netns === '' ? '' : join(NETNS_DIR, netns),
  CNI_IFNAME: 'eth0',
  CNI_ARGS: `IgnoreUnknown=1;K8S_POD_NAMESPACE=default;K8S_POD_NAME=${container}`,
});

export const addressesIn = (netns: string, device = 'eth0'): string[] =>
  (
    JSON.parse(execFileSync('ip', ['-n', netns, '-j', 'addr', 'show', device], { encoding: 'utf8' }))[0]
      .addr_info as { local: string; prefixlen: number; scope: string }[]
  )
    .filter(({ scope }) => scope === 'global')
    .map(({ local, prefixlen }) => `${local}/${prefixlen}`);

/** Must be called once per test file: the node is created before each of its tests and removed after it. */
export function pluginNode(): PluginNode {
  const undo = new Undo();
  let topology: Topology;
  let netns: string;
  let folder: string;
  let socket: string;
  let network: NodeNetwork;
  let pods: PodNetwork;
  let stopAgent = () => {};

  beforeEach(() => {
    topology = testTopology(undo, 1);
    netns = netnsOf(topology, 1);
    folder = mkdtempSync(join(tmpdir(), 'flt-cni-'));
    undo.add(() => rmSync(folder, { recursive: true, force: true }));
    socket = join(folder, 'cni.sock');
    writeFileSync(join(folder, 'plugin'), pluginProgram(socket), { mode: 0o755 });
    startAgent();
  });
  afterEach(() => undo.run());

  function startAgent(): void {
    network = new NodeNetwork({
      ...testNode(1),
      node: 'node-1',
      podCidrs: testPodCidrs(1),
      overlay: 'routes',
      netns,
    });
    pods = openPodNetwork({ network, stateDir: folder });
    const server = serveCni({ path: socket, network, pods, logger: silentLogger });
    let stopped = false;
    stopAgent = () => {
      if (stopped) return;
      stopped = true;
      server.close();
      pods.close();
      network.close();
    };
    undo.add(stopAgent);
  }

  const call: PluginNode['call'] = ([file, ...args], variables, input) =>
    new Promise((resolve, reject) => {
      const child = spawnInNetns(netns, file, args, {
        env: { PATH: process.env['PATH'] ?? '', CNI_PATH: DEBIAN, ...variables },
        stdio: ['pipe', 'pipe', 'inherit'],
      });
      let text = '';
      child.stdout?.setEncoding('utf8').on('data', (chunk: string) => {
        text += chunk;
      });
      child.on('error', reject);
      child.on('close', (status) => {
        resolve({ status: status ?? -1, answer: text === '' ? null : JSON.parse(text) });
      });
      child.stdin?.on('error', () => {});
      child.stdin?.end(typeof input === 'string' ? input : JSON.stringify(input));
    });
  const config = (more: object = {}) => ({
    cniVersion: '1.1.0',
    name: 'test',
    type: 'fairlead',
    ...more,
  });
  const ours: PluginNode['ours'] = (command, container, more = {}, inside = container) =>
    call([join(folder, 'plugin')], environment(command, container, inside), config(more));

  return {
    undo,
    get plugin(): Program {
      return [join(folder, 'plugin')];
    },
    get topology() {
      return topology;
    },
    get netns() {
      return netns;
    },
    get folder() {
      return folder;
    },
    get socket() {
      return socket;
    },
    get pods() {
      return pods;
    },
    stopAgent: () => stopAgent(),
    startAgent,
    call,
    config,
    ours,
    async add(container, more = {}) {
      const { status, answer } = await ours('ADD', container, more);
      assert.equal(status, 0, JSON.stringify(answer));
      return answer;
    },
    ports: () =>
      listLinks(network.socket)
        .map(({ name }) => name)
        .filter((name) => name.startsWith('flp')),
  };
}
