import { type Attached, attach } from '../attach.ts';
import type { Condition } from '../conditions.ts';
import { decide } from '../decide.ts';
import type { Decision, GatewayRequest } from '../decision.ts';
import type { GatewayObject, GatewayObjects } from '../objects.ts';
import { list, record, text } from '../raw.ts';
import { indexRoutes } from '../route-index.ts';
import {
  gateway,
  gatewayClass,
  listener,
  namespaceObject,
  objects,
  outcome,
  request,
  service,
} from './objects.ts';

/** A cluster with the Gateway "gw" of namespace default, for tests. */
export interface World extends Attached {
  ask(url: string, parts?: Partial<GatewayRequest>): string;
  decide(url: string, parts?: Partial<GatewayRequest>): Decision;
  /** Conditions of a route for its first parent, or of another object, as "TYPE REASON" (with "!" before the type: False). */
  conditions(kind: string, name: string, parent?: number): readonly string[];
  /** The same of a listener of a Gateway or ListenerSet; first the number of attached routes. */
  listener(kind: string, name: string, section: string): readonly (string | number)[];
  messages(kind: string, name: string): string;
}

export function world(parts: Partial<GatewayObjects>): World {
  const gateways: readonly GatewayObject[] = parts.gateways ?? [gateway('gw', [listener('http')])];
  const addresses = new Map(
    gateways.map(
      ({ metadata }) => [`gateway/${metadata?.namespace}/${metadata?.name}`, ['192.0.2.10']] as const,
    ),
  );
  const attached = attach(
    objects({
      gatewayClasses: [gatewayClass()],
      namespaces: [namespaceObject('default'), namespaceObject('other', { team: 'other' })],
      services: [...['a', 'b', 'c', 'd'].map((name) => service(name)), service('a', { namespace: 'other' })],
      certificates: new Map([
        ['default/tls', null],
        ['other/tls', null],
      ]),
      authorities: new Map([
        ['default/ConfigMap/ca', null],
        ['other/ConfigMap/ca', null],
      ]),
      addresses,
      ...parts,
      gateways,
    }),
  );
  const index = indexRoutes(attached.routeMap);
  const ask = (url: string, more: Partial<GatewayRequest> = {}) =>
    decide(index, request(url, { gateway: 'gateway/default/gw', ...more }));
  const statusOf = (kind: string, name: string) => {
    const key = name.includes('/') ? name : `default/${name}`;
    const found = attached.statuses.find(
      (status) =>
        status.kind === kind && (`${status.namespace}/${status.name}` === key || status.name === name),
    );
    return found?.status ?? {};
  };
  return {
    ...attached,
    ask: (url, more) => outcome(ask(url, more)),
    decide: ask,
    conditions(kind, name, parent = 0) {
      const status = statusOf(kind, name);
      const entry = record(list(status['parents'] ?? status['ancestors'])[parent]);
      return shown(status['conditions'] ?? entry['conditions']);
    },
    listener(kind, name, section) {
      const found = list(statusOf(kind, name)['listeners'])
        .map(record)
        .find((one) => one['name'] === section);
      return found ? [Number(found['attachedRoutes']), ...shown(found['conditions'])] : [];
    },
    messages: (kind, name) => JSON.stringify(statusOf(kind, name)),
  };
}

function shown(conditions: unknown): readonly string[] {
  return (list(conditions) as readonly Condition[]).map(
    ({ type, status, reason }) => `${status === 'True' ? '' : '!'}${type} ${text(reason)}`,
  );
}
