import { request as httpsRequest } from 'node:https';
import type { Duplex } from 'node:stream';
import { checkedTarget, type MayDial } from '../kube/dial-check.ts';
import { hostPort } from '../lib/address.ts';
import { messageOf } from '../lib/errors.ts';
import { at, listAt } from './object.ts';
import { badRequest, StatusError } from './status-error.ts';
import type { Store } from './store.ts';

/** Opens connections to addresses inside the cluster: pods, Services, nodes. */
export interface ClusterDialer {
  /**
   * Connects to an address. `node`: the node to go through; null: any ready node. Rejects with StatusError 400 for an address
   * that is not allowed, and with 503 if no connection is possible.
   */
  dial(host: string, port: number, node: string | null): Promise<Duplex>;
}

export interface ClusterDialerOptions {
  readonly store: Store;
  readonly mayDial: MayDial;
  /** The API server's certificate for connections to nodes, and the nodes' authority. PEM. */
  readonly tls: { readonly cert: string; readonly key: string; readonly ca: string };
}

const CONNECT_MS = 10_000;

/** Connects through a node's server with HTTP CONNECT: the control plane has no route to pods and Services. */
export function createClusterDialer({ store, mayDial, tls }: ClusterDialerOptions): ClusterDialer {
  return {
    async dial(host, port, node) {
      // Names are refused, too: the node would resolve them.
      if (!mayDial(host)) throw badRequest('address not allowed');
      const through = tunnelOf(store, node);
      const target = hostPort({ ip: host, port });
      const refusal = (cause: string) =>
        new StatusError(
          503,
          'ServiceUnavailable',
          `error trying to reach service: dial tcp ${target}: ${cause}`,
          {},
        );
      if (!through) throw refusal('no node is ready to connect through');
      const server = allowed(through.host, mayDial);
      return new Promise((resolve, reject) => {
        const outgoing = httpsRequest({
          method: 'CONNECT',
          ...server,
          port: through.port,
          path: target,
          headers: { host: target },
          agent: false,
          ...tls,
          checkServerIdentity: () => undefined,
        });
        const late = setTimeout(() => outgoing.destroy(new Error('i/o timeout')), CONNECT_MS);
        outgoing.on('connect', (response, socket, head) => {
          clearTimeout(late);
          if (response.statusCode === 200) {
            if (head.length > 0) socket.unshift(head);
            resolve(socket);
            return;
          }
          socket.destroy();
          reject(refusal(response.statusMessage ?? String(response.statusCode)));
        });
        outgoing.on('response', (response) => {
          clearTimeout(late);
          response.destroy();
          reject(refusal(`node ${through.name} answered ${response.statusCode}`));
        });
        outgoing.on('error', (error) => {
          clearTimeout(late);
          reject(refusal(messageOf(error)));
        });
        outgoing.end();
      });
    },
  };
}

/** Works like `checkedTarget`; throws StatusError 400, with upstream's text. */
export function allowed(host: string, mayDial: MayDial): ReturnType<typeof checkedTarget> {
  try {
    return checkedTarget(host, mayDial);
  } catch (error) {
    throw badRequest(messageOf(error));
  }
}

interface Tunnel {
  readonly name: string;
  readonly host: string;
  readonly port: number;
}

/** Returns the server of the named node, or of any ready node. */
function tunnelOf(store: Store, name: string | null): Tunnel | null {
  const nodes = name === null ? store.list('nodes') : [store.get('nodes', `/${name}`)];
  for (const node of nodes) {
    const address = listAt(node?.object, 'status', 'addresses').find((one) => one['type'] === 'InternalIP');
    const port = at(node?.object, 'status', 'daemonEndpoints', 'kubeletEndpoint', 'Port');
    const ready = listAt(node?.object, 'status', 'conditions').find((one) => one['type'] === 'Ready');
    if (!node || !address || typeof port !== 'number') continue;
    if (name === null && ready?.['status'] !== 'True') continue;
    return { name: node.object.metadata.name ?? '', host: String(address['address']), port };
  }
  return null;
}
