import type { Informer } from '../kube/informer.ts';
import type { EndpointSlice, Service } from '../kube/types.ts';
import { HEADLESS_LABEL, LAST_CHANGE_ANNOTATION, PROXY_NAME_LABEL } from '../kube/well-known-labels.ts';
import type { ServiceTable } from '../service/service-table.ts';
import type { ProxyMetrics } from './proxy-metrics.ts';

/** Services with these labels are for another proxy, or headless (KEP-2447). */
const EXCLUDED = [PROXY_NAME_LABEL, HEADLESS_LABEL];

export interface ServiceFeedOptions {
  readonly table: ServiceTable;
  readonly services: Informer<Service>;
  readonly slices: Informer<EndpointSlice>;
  readonly metrics: Pick<ProxyMetrics, 'serviceChanged' | 'endpointsChanged'>;
  /** Called after each change of the table. */
  readonly notify: () => void;
}

/** Keeps the table in sync with the Services and EndpointSlices. It has all currently known objects when this returns. */
export function feedServices({ table, services, slices, metrics, notify }: ServiceFeedOptions): void {
  const deleteService = ({ metadata }: Service) => {
    table.deleteService(metadata?.namespace ?? '', metadata?.name ?? '');
    metrics.serviceChanged();
    notify();
  };
  const setService = (service: Service) => {
    if (!isIncluded(service)) return deleteService(service);
    table.setService(service);
    metrics.serviceChanged();
    notify();
  };
  services.handle({ onAdd: setService, onUpdate: setService, onDelete: deleteService });
  let initial = true;
  const setSlice = (slice: EndpointSlice) => {
    table.setSlice(slice);
    // Changes from before this agent's start do not measure its speed.
    metrics.endpointsChanged(initial ? null : triggerTime(slice));
    notify();
  };
  slices.handle({
    onAdd: setSlice,
    onUpdate: setSlice,
    onDelete({ metadata }) {
      table.deleteSlice(metadata?.namespace ?? '', metadata?.name ?? '');
      metrics.endpointsChanged(null);
      notify();
    },
  });
  initial = false;
}

function isIncluded({ metadata }: Service): boolean {
  const labels = (metadata?.labels ?? {}) as Record<string, string>;
  return !EXCLUDED.some((label) => label in labels);
}

/** Returns the time of the change that triggered a slice's update, in milliseconds since the epoch; null: unknown. */
function triggerTime({ metadata }: EndpointSlice): number | null {
  const text = (metadata?.annotations as Record<string, string> | undefined)?.[LAST_CHANGE_ANNOTATION];
  const at = text === undefined ? Number.NaN : Date.parse(text);
  return Number.isNaN(at) ? null : at;
}
