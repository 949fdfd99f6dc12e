import { isRunning } from '../../kernel/process-identity.ts';
import { openFreeApiPort } from '../creation.ts';
import { listenOnApiPort, listenOnLoopback } from '../loopback-listeners.ts';
import { checkPublishedPorts, readPortReports } from '../published-ports.ts';
import type { PublishedPort } from '../service-port.ts';
import { readCluster, readSupervision } from '../state.ts';
import type { PassedListener } from './passed-listeners.ts';

/**
 * Opens the sockets on the user's loopback that `up` needs for a cluster: of its API server, and of the published ports that it
 * has not open. `ports` null: those of the existing cluster. Throws FairleadError if a port is in use.
 */
export function openUpListeners(name: string, ports: readonly PublishedPort[] | null): PassedListener[] {
  const found = readCluster(name);
  const existing = found?.isCreated === false ? null : found;
  const published = ports ?? existing?.publishedPorts ?? [];
  checkPublishedPorts(published, existing);
  const reports = existing ? readPortReports(existing) : [];
  const open = (existing?.publishedPorts ?? []).filter((_, i) => reports[i]?.problem === null);
  const added = published
    .map(({ localPort }) => localPort)
    .filter((port) => !open.some(({ localPort }) => localPort === port));
  const listeners = added.map((port) => ({ wanted: port, ...listenOnLoopback(port) }));
  const reserved = published.map(({ localPort }) => localPort);
  if (existing === null) return [...listeners, { wanted: 'api', ...openFreeApiPort(reserved) }];
  const { supervisor, standby } = readSupervision(name);
  // They have the socket.
  if ([supervisor, standby, existing.controlPlane].some(isRunning)) return listeners;
  return [...listeners, { wanted: 'api', ...listenOnApiPort(existing.apiPort) }];
}
