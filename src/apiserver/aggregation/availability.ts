import { timestamp } from '../../kube/timestamp.ts';
import { messageOf } from '../../lib/errors.ts';
import type { User } from '../authentication/user.ts';
import { type ApiObject, at, equal, isObject, type JsonObject, listAt } from '../object.ts';
import { StatusError } from '../status-error.ts';
import type { AggregatorOptions } from './aggregator-options.ts';
import { API_SERVICE_KIND, type RemoteApi } from './api-service.ts';

export const CHECK_USER: User = { name: 'system:kube-aggregator', groups: ['system:masters'] };
export const CHECK_MS = 5000;

/** Whether aggregated servers answer, as the condition Available of their APIServices says it. */
export interface Availability {
  /** Asks a server, and sets the condition. */
  check(api: RemoteApi): Promise<void>;
  /** Returns the resources that the server has listed last. */
  resourcesOf(name: string): readonly JsonObject[];
  close(): void;
}

export function createAvailability(options: Omit<AggregatorOptions, 'logger'>): Availability {
  const { store, resources, client, clock } = options;
  const lists = new Map<string, readonly JsonObject[]>();
  let isClosed = false;

  /** Returns whether an API is available, and why (upstream's remote AvailableConditionController). */
  async function condition(api: RemoteApi): Promise<{ status: string; reason: string; message: string }> {
    const { namespace, name, port } = api.service;
    const no = (reason: string, message: string) => ({ status: 'False', reason, message });
    const service = store.get('services', `${namespace}/${name}`)?.object;
    if (!service) return no('ServiceNotFound', `service/${name} in "${namespace}" is not present`);
    const isElsewhere = at(service, 'spec', 'type') === 'ExternalName';
    if (!isElsewhere && !listAt(service, 'spec', 'ports').some((one) => one['port'] === port)) {
      return no('ServicePortError', `service/${name} in "${namespace}" is not listening on port ${port}`);
    }
    const path = `/apis/${api.group}/${api.version}`;
    try {
      const list = await client.read(api, path, CHECK_USER, CHECK_MS);
      lists.set(api.name, isObject(list) ? listAt(list, 'resources') : []);
      return { status: 'True', reason: 'Passed', message: 'all checks passed' };
    } catch (error) {
      const message = messageOf(error);
      return /^no endpoints available/.test(message)
        ? no('MissingEndpoints', `endpointslices for service/${name} in "${namespace}" have no addresses`)
        : no(
            'FailedDiscoveryCheck',
            `failing or missing response from https://${name}.${namespace}.svc:${port}${path}: ${message}`,
          );
    }
  }

  function setCondition(
    name: string,
    { status, reason, message }: { status: string; reason: string; message: string },
  ) {
    const object = store.get(API_SERVICE_KIND.collection, `/${name}`)?.object;
    if (!object) return;
    const before = listAt(object, 'status', 'conditions').find(({ type }) => type === 'Available');
    const lastTransitionTime =
      before?.['status'] === status ? before['lastTransitionTime'] : timestamp(clock.now());
    const next = { type: 'Available', status, lastTransitionTime, reason, message };
    if (equal(before, next)) return;
    resources.update(
      API_SERVICE_KIND,
      '',
      name,
      (current: ApiObject) => ({ ...current, status: { conditions: [next] } }),
      { part: 'status' },
    );
  }

  return {
    async check(api) {
      const result = await condition(api);
      if (isClosed) return;
      try {
        setCondition(api.name, result);
      } catch (error) {
        // The object was deleted or changed concurrently: that change triggers the next check.
        if (!(error instanceof StatusError)) throw error;
      }
    },
    resourcesOf: (name) => lists.get(name) ?? [],
    close() {
      isClosed = true;
    },
  };
}
