import { type ChildProcess, execFileSync, fork } from 'node:child_process';
import { readFileSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { createNetns, inNetns, removeNetns } from '../src/kernel/netns.ts';
import { writeSysctls } from '../src/kernel/sysctl.ts';
import type { Task, Timing } from './connect-peer.ts';

const SERVER_PORT = 8080;

/** A client's pod, a node, and one pod that has the addresses of all pods, each in a new namespace. */
export interface RoutedPods {
  /** The node's network namespace. */
  readonly node: string;
  ask(task: Task): Promise<Timing>;
  /**
   * Returns the processor time that the client and the server have used, in ns. It includes the kernel's
   * processing of their packets: veth devices do this in the context of the sending process.
   */
  processorTime(): number;
  /** Ends the client and the server, and removes the namespaces. */
  close(): Promise<void>;
}

/**
 * Creates the namespaces. `nodeAddress`: an address of the node; `group`: the control group of the client's
 * process, null: that of this process.
 */
export async function routePods(
  prefix: string,
  nodeAddress: string,
  group: string | null,
): Promise<RoutedPods> {
  const [client, node, pods] = [`${prefix}-client`, `${prefix}-node`, `${prefix}-pods`];
  const children: ChildProcess[] = [];
  const close = async () => {
    for (const child of children) {
      const ended = new Promise<void>((resolve) => child.once('exit', () => resolve()));
      if (child.exitCode === null && child.signalCode === null && child.kill('SIGKILL')) await ended;
    }
    for (const netns of [client, node, pods]) removeNetns(netns);
  };
  const ip = (netns: string, ...lines: string[]) =>
    execFileSync('ip', ['-n', netns, '-batch', '-'], { input: `${lines.join('\n')}\n` });
  const start = async (netns: string, ...args: string[]): Promise<ChildProcess> => {
    const script = join(import.meta.dirname, 'connect-peer.ts');
    const child = inNetns(netns, () =>
      fork(script, args, { stdio: ['ignore', 'inherit', 'inherit', 'ipc'] }),
    );
    children.push(child);
    await new Promise<void>((resolve, reject) => {
      child.once('message', () => resolve());
      child.once('exit', (status) => reject(new Error(`${args[0]} ended with status ${status}`)));
    });
    return child;
  };
  try {
    for (const netns of [client, node, pods]) {
      createNetns(netns);
      ip(netns, 'link set lo up');
    }
    for (const [netns, link, address] of [
      [client, 'client', '10.200.0.2'],
      [pods, 'pods', '10.201.0.2'],
    ] as const) {
      ip(node, `link add ${link} type veth peer name eth0 netns ${netns}`);
      ip(
        node,
        `link set ${link} up`,
        `addr replace 10.200.0.1/32 dev ${link}`,
        `route add ${address}/32 dev ${link}`,
      );
      ip(
        netns,
        'link set eth0 up',
        `addr add ${address}/32 dev eth0`,
        'route add 10.200.0.1/32 dev eth0',
        `route add default via 10.200.0.1 src ${address}`,
      );
    }
    // The address of the node, as in its Node object.
    ip(node, `addr add ${nodeAddress}/32 dev lo`);
    ip(node, 'route add 10.0.0.0/10 via 10.201.0.2 dev pods onlink');
    // Every address of these networks belongs to the pod.
    ip(pods, 'route add local 10.0.0.0/10 dev lo');
    writeSysctls({ 'net.ipv4.ip_forward': 1 }, node);
    await start(pods, 'server', String(SERVER_PORT));
    const asker = await start(client, 'client');
    if (group !== null) writeFileSync(join(group, 'cgroup.procs'), `${asker.pid}`);
    // Neighbours are resolved now, not by the first measured connection.
    ip(node, 'route get 10.200.0.2');
    return {
      node,
      ask: (task) =>
        new Promise((resolve, reject) => {
          const onExit = () => reject(new Error('the client ended'));
          asker.once('exit', onExit);
          asker.once('message', (timing) => {
            asker.off('exit', onExit);
            resolve(timing as Timing);
          });
          asker.send(task);
        }),
      processorTime: () =>
        children.reduce(
          (sum, { pid }) => sum + Number(readFileSync(`/proc/${pid}/schedstat`, 'utf8').split(' ')[0]),
          0,
        ),
      close,
    };
  } catch (error) {
    await close();
    throw error;
  }
}
