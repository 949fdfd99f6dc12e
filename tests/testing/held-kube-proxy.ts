import { type ChildProcess, spawn } from 'node:child_process';
import { once } from 'node:events';
import { mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { createInterface } from 'node:readline';
import { KUBE_PROXY } from './kube-proxy-origin.ts';
import type { TakeOverScene } from './take-over.ts';

/** Relays connections on loopback to an address, but only from when standard input ends: earlier ones wait. */
const RELAY = `
const net = require('node:net');
const [host, port] = process.argv.slice(1);
const gate = new Promise((resolve) => process.stdin.resume().on('end', resolve));
const server = net.createServer({ pauseOnConnect: true }, async (socket) => {
  socket.on('error', () => {});
  await gate;
  const other = net.connect(Number(port), host);
  other.on('error', () => socket.destroy());
  socket.on('close', () => other.destroy());
  socket.pipe(other).pipe(socket);
  socket.resume();
});
server.listen(0, '127.0.0.1', () => console.log(server.address().port));
`;

/** A real kube-proxy that runs on the first node, but has not reached the API server yet. */
export interface HeldKubeProxy {
  /** Lets it reach the API server. */
  release(): void;
  stop(): Promise<void>;
}

export async function startHeldKubeProxy(
  { namespace, kubeconfig }: TakeOverScene,
  mode: 'iptables' | 'nftables',
): Promise<HeldKubeProxy> {
  const folder = mkdtempSync(join(tmpdir(), 'flt-'));
  const children: ChildProcess[] = [];
  const inNode = (...words: readonly string[]) => {
    const child = spawn('ip', ['netns', 'exec', namespace, ...words], { stdio: ['pipe', 'pipe', 'ignore'] });
    children.push(child);
    return child;
  };
  const text = readFileSync(kubeconfig, 'utf8');
  const [url = '', host = '', port = ''] = /https:\/\/([0-9.]+):([0-9]+)/.exec(text) ?? [];
  const relay = inNode(process.execPath, '-e', RELAY, host, port);
  const [held] = (await once(createInterface({ input: relay.stdout }), 'line')) as [string];
  const file = join(folder, 'kubeconfig');
  writeFileSync(file, text.replaceAll(url, `https://127.0.0.1:${held}`), { mode: 0o600 });
  inNode(
    ...[KUBE_PROXY, '--kubeconfig', file, '--hostname-override', 'node-1', '--proxy-mode', mode],
    ...['--cluster-cidr', '10.244.0.0/16', '--conntrack-max-per-core', '0'],
  );
  return {
    release: () => void relay.stdin.end(),
    async stop() {
      for (const child of children.reverse()) if (child.kill('SIGKILL')) await once(child, 'exit');
      rmSync(folder, { recursive: true, force: true });
    },
  };
}
