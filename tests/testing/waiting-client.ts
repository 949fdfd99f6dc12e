import assert from 'node:assert/strict';
import type { ChildProcess } from 'node:child_process';
import { createInterface } from 'node:readline';
import { type Cluster, spawnFairlead } from './cluster.ts';

/**
 * Connects until a connection to the server of that name is open, reports it, then waits without sending;
 * reports the end.
 */
const WAIT_FOR_END = `
const { connect } = require('node:net');
const [name, host, port] = process.argv.slice(1);
const attempt = () => {
  const socket = connect(port, host, () => socket.write('GET /hostname HTTP/1.1\\r\\nHost: x\\r\\n\\r\\n'));
  socket.once('data', (data) => {
    if (!data.toString().includes(name)) { socket.destroy(); return attempt(); }
    console.log('connected');
    socket.on('error', (error) => { console.log(error.code); process.exit(0); });
    socket.on('end', () => { console.log('end'); process.exit(0); });
  });
  socket.once('error', () => {});
};
attempt();
`;

/** A client outside that is connected to one pod and only waits. */
export interface WaitingClient {
  /** How its connection ends: an error's code, or "end". */
  readonly end: Promise<string>;
  stop(): void;
}

/** Connects the client outside to a pod through a node port. Resolves when the connection is open. */
export async function startWaitingClient(
  cluster: Cluster,
  pod: string,
  host: string,
  port: number,
): Promise<WaitingClient> {
  const child: ChildProcess = spawnFairlead(cluster.stateRoot, [
    ...['exec', '--name', cluster.name, 'outside', '--'],
    ...[process.execPath, '-e', WAIT_FOR_END, pod, host, String(port)],
  ]);
  const lines = createInterface(child.stdout ?? process.stdin)[Symbol.asyncIterator]();
  const next = async () => String((await lines.next()).value);
  assert.equal(await next(), 'connected');
  return { end: next(), stop: () => void child.kill() };
}
