import type { ClusterView, NodeView, ObjectChanges, PageEvent, PodView, ServiceView } from '../view.ts';
import { addTick, NO_TRAFFIC, type Traffic } from './traffic.ts';

/** All that the page knows of the cluster. A new object after each event. */
export interface ClusterData {
  /** `lost`: the command has ended, or cannot be reached. */
  readonly connection: 'connecting' | 'open' | 'lost';
  readonly cluster: ClusterView | null;
  readonly namespaces: ReadonlyMap<string, true>;
  readonly nodes: ReadonlyMap<string, NodeView>;
  readonly services: ReadonlyMap<string, ServiceView>;
  readonly pods: ReadonlyMap<string, PodView>;
  readonly traffic: Traffic;
  readonly notices: readonly string[];
}

export const NO_DATA: ClusterData = {
  connection: 'connecting',
  cluster: null,
  namespaces: new Map(),
  nodes: new Map(),
  services: new Map(),
  pods: new Map(),
  traffic: NO_TRAFFIC,
  notices: [],
};

/** Returns the data after an event. */
function applyEvent(data: ClusterData, event: PageEvent): ClusterData {
  switch (event.type) {
    case 'cluster':
      return { ...data, cluster: event.cluster, traffic: NO_TRAFFIC };
    case 'objects':
      return { ...data, ...applyObjects(event.full ? NO_DATA : data, event.changes) };
    case 'tick':
      return { ...data, traffic: addTick(data.traffic, event.tick) };
    case 'notices':
      return { ...data, notices: event.notices };
  }
}

function applyObjects(before: ClusterData, changes: ObjectChanges) {
  return {
    namespaces: changed(before.namespaces, changes.namespaces),
    nodes: changed(before.nodes, changes.nodes),
    services: changed(before.services, changes.services),
    pods: changed(before.pods, changes.pods),
  };
}

function changed<V>(
  before: ReadonlyMap<string, V>,
  changes: Readonly<Record<string, V | null>>,
): ReadonlyMap<string, V> {
  const entries = Object.entries(changes);
  if (entries.length === 0) return before;
  const after = new Map(before);
  for (const [name, value] of entries) {
    if (value === null) after.delete(name);
    else after.set(name, value);
  }
  return after;
}

/**
 * Follows the server's events; reconnects by itself. Reports at most once for each frame, and not in the task that reads an
 * event, so that reading and drawing have a frame each. Returns a function that ends it.
 */
export function followCluster(onData: (data: ClusterData) => void): () => void {
  let data = NO_DATA;
  let frame = 0;
  const put = (next: ClusterData) => {
    data = next;
    if (frame !== 0) return;
    frame = requestAnimationFrame(() => {
      frame = 0;
      onData(data);
    });
  };
  const source = new EventSource('api/events');
  source.onopen = () => put({ ...data, connection: 'open' });
  source.onerror = () => put({ ...data, connection: 'lost' });
  source.onmessage = ({ data: text }) => put(applyEvent(data, JSON.parse(text as string) as PageEvent));
  return () => {
    source.close();
    cancelAnimationFrame(frame);
  };
}
