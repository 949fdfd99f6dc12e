import type { EndpointKey } from './endpoint-key.ts';
import type { NodeView, ServiceMap } from './model.ts';
import type { EndpointSliceObject, ServiceObject } from './objects.ts';
import { createServiceTable } from './service-table.ts';

export interface CompileInput {
  readonly node: NodeView;
  readonly services: Iterable<ServiceObject>;
  readonly slices: Iterable<EndpointSliceObject>;
  /** Endpoints to eject, by `endpointKey`; see `ServiceTable.setEjected`. */
  readonly ejected?: ReadonlySet<EndpointKey>;
}

/**
 * Returns the forwarding table of a node for these API objects. Pure, and never throws because of their
 * contents: an unusable part becomes a Finding, the rest is compiled. The map does not change afterwards.
 */
export function compile(input: CompileInput): ServiceMap {
  const table = createServiceTable(input.node);
  for (const service of input.services) table.setService(service);
  for (const slice of input.slices) table.setSlice(slice);
  if (input.ejected) table.setEjected(input.ejected);
  return table.commit().map;
}
