import { connect as connectHttp2 } from 'node:http2';
import { connect } from 'node:net';
import type { Container, Probe } from '../kube/types.ts';
import { hostPort } from '../lib/address.ts';
import { messageOf } from '../lib/errors.ts';
import { probeHttp } from './http-probe.ts';
import { KubeletError } from './kubelet-error.ts';
import type { ProbeResult } from './probe-result.ts';

export interface ProbeTarget {
  /** The address of the container's ports for the node. */
  readonly address: string;
  readonly container: Container;
  exec(
    command: readonly string[],
    timeoutMs: number,
  ): Promise<{ code: number; stdout: string; stderr: string }>;
}

/** A HealthCheckResponse has a head of five bytes and two more. */
const MAX_GRPC_BYTES = 64;

type Action = Pick<Probe, 'exec' | 'httpGet' | 'tcpSocket' | 'grpc'>;

/** Executes a probe's action once. Never throws: errors are failures with a message. */
export async function runProbe(action: Action, target: ProbeTarget, timeoutMs: number): Promise<ProbeResult> {
  try {
    if (action.exec) {
      const { code, stdout, stderr } = await target.exec(action.exec.command ?? [], timeoutMs);
      return { ok: code === 0, message: (stdout + stderr).slice(0, 1024).trim() || `exit code ${code}` };
    }
    if (action.httpGet) {
      const { host, port } = action.httpGet;
      const place = { host: host || target.address, port: portNumber(port, target.container) };
      return await probeHttp(action.httpGet, place, timeoutMs);
    }
    if (action.tcpSocket) {
      const { host, port } = action.tcpSocket;
      return await probeTcp(host || target.address, portNumber(port, target.container), timeoutMs);
    }
    if (action.grpc) return await probeGrpc(action.grpc, target, timeoutMs);
    return { ok: false, message: 'the probe has no action' };
  } catch (error) {
    return { ok: false, message: messageOf(error) };
  }
}

/** Returns a port by number, or by its name among the container's ports. */
export function portNumber(port: number | string, container: Container): number {
  if (typeof port === 'number') return port;
  if (/^[0-9]+$/.test(port)) return Number(port);
  const named = container.ports?.find((candidate) => candidate.name === port);
  if (!named)
    throw new KubeletError(
      'CreateContainerConfigError',
      `container ${container.name} has no port named ${JSON.stringify(port)}`,
      { op: 'probe container' },
    );
  return named.containerPort;
}

function probeTcp(host: string, port: number, timeoutMs: number): Promise<ProbeResult> {
  return new Promise((resolve) => {
    const socket = connect({ host, port });
    const finish = (ok: boolean, message: string) => {
      socket.destroy();
      resolve({ ok, message });
    };
    socket.setTimeout(timeoutMs, () =>
      finish(false, `dial tcp ${hostPort({ ip: host, port })}: no answer in ${timeoutMs} ms`),
    );
    socket.on('connect', () => finish(true, ''));
    socket.on('error', (error) => finish(false, messageOf(error)));
  });
}

/**
 * Sends grpc.health.v1.Health/Check: request {1: service}, response {1: status}, SERVING = 1 (gRPC health checking
 * protocol).
 */
function probeGrpc(
  action: NonNullable<Probe['grpc']>,
  target: ProbeTarget,
  timeoutMs: number,
): Promise<ProbeResult> {
  const service = Buffer.from(action.service ?? '');
  const message =
    service.length > 0 ? Buffer.concat([Buffer.of(0x0a, service.length), service]) : Buffer.alloc(0);
  const frame = Buffer.concat([Buffer.of(0, 0, 0, 0, message.length), message]);
  return new Promise((resolve) => {
    const session = connectHttp2(`http://${hostPort({ ip: target.address, port: action.port })}`);
    const finish = (ok: boolean, text: string) => {
      clearTimeout(timer);
      session.destroy();
      resolve({ ok, message: text });
    };
    const timer = setTimeout(() => finish(false, `gRPC probe: no answer in ${timeoutMs} ms`), timeoutMs);
    session.on('error', (error) => finish(false, messageOf(error)));
    const stream = session.request({
      ':method': 'POST',
      ':path': '/grpc.health.v1.Health/Check',
      'content-type': 'application/grpc',
      te: 'trailers',
    });
    let answer = Buffer.alloc(0);
    stream.on('data', (chunk: Buffer) => {
      answer = Buffer.concat([answer, chunk.subarray(0, MAX_GRPC_BYTES - answer.length)]);
    });
    stream.on('error', (error) => finish(false, messageOf(error)));
    stream.on('end', () => {
      const body = answer.subarray(5);
      finish(
        body[0] === 0x08 && body[1] === 1,
        `service unhealthy (responded with status ${body[1] ?? 'UNKNOWN'})`,
      );
    });
    stream.end(frame);
  });
}
