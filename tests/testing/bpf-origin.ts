import assert from 'node:assert/strict';
import { spawn } from 'node:child_process';
import { once } from 'node:events';
import { join } from 'node:path';
import { findBpf } from '../../src/agent/bpf-leftovers.ts';
import { bpfPlace } from '../../src/agent/other-proxies.ts';
import {
  CALICO_LIKE,
  CILIUM_LIKE,
  type ImitatedProxy,
  leaveProxy,
} from '../../src/agent/testing/imitated-bpf-proxy.ts';
import { cgroupParent } from '../../src/cluster/processes.ts';
import { openPinnedMap } from '../../src/kernel/bpf/map.ts';
import { addressBytes } from '../../src/lib/address.ts';
import type { Origin } from './take-over.ts';

const PROGRAM_NAMES = /^(cil_sock|calico_)/;

/**
 * An imitation of a product that translates at sockets (`leaveProxy` says how far): all Services go to one pod of the other
 * node, and a process with the product's name stands for its agent.
 */
function imitated(name: string, like: ImitatedProxy, words: readonly string[]): Origin {
  return {
    name,
    async start({ cluster, namespace }, services) {
      const pods = await cluster.pods('app=hello');
      const pod = pods.find(({ node }) => node !== 'node-1');
      const client = pods.find(({ node }) => node === 'node-1');
      assert.ok(pod && client, 'a pod on each node');
      const place = bpfPlace(cgroupParent(cluster.name, 'node-1'));
      const left = leaveProxy(
        like,
        place,
        services.map((address) => [address, pod.ips[0] ?? '', 8080] as const),
      );
      const [program, ...more] = words;
      const script = `exec -a ${program} "$0" -e 'setInterval(() => {}, 1e6)' -- ${more.join(' ')}`;
      const child = spawn('ip', ['netns', 'exec', namespace, 'bash', '-c', script, process.execPath], {
        stdio: 'ignore',
      });
      await once(child, 'spawn');
      const programs = () =>
        findBpf({ programs: PROGRAM_NAMES, links: null, maps: /^$/ }, place).programs.map((one) => one.name);
      const keys = () => {
        const map = openPinnedMap(join(place.pins, 'tc', 'globals', like.map));
        try {
          return (map?.keys() ?? []).map((key) => Buffer.from(key.subarray(-4)).toString('hex')).sort();
        } finally {
          map?.close();
        }
      };
      const hex = (address: string) => Buffer.from(addressBytes(address) ?? []).toString('hex');
      return {
        // In a local cluster, the node's control group has its pods, but no other processes.
        client: client.name,
        // The node's own processes open none.
        hasNodePorts: false,
        async stop() {
          child.kill('SIGKILL');
          await once(child, 'exit');
        },
        rules: () => [...programs(), ...keys()],
        translates: (address) => programs().length > 0 && keys().includes(hex(address)),
        isLeft: () => programs().length > 0 || keys().length > 0,
        isDraining: () => false,
        dispose() {
          child.kill('SIGKILL');
          left.dispose();
        },
      };
    },
  };
}

export const CILIUM = imitated('Cilium', CILIUM_LIKE, ['cilium-agent']);
export const CALICO = imitated('Calico (eBPF)', CALICO_LIKE, ['calico-node', '-felix']);
