import { readFileSync } from 'node:fs';
import { parseAllDocuments } from 'yaml';
import { KINDS } from '../../src/apiserver/kinds.ts';

export type BaseObject = Record<string, unknown> & {
  kind: string;
  apiVersion: string;
  metadata: { name: string; finalizers?: unknown };
};

/** Returns a valid object, or several, of each kind. */
export const baseObjects = (): BaseObject[] => documents('objects.yaml');

/** Returns the objects that variations are made of: also those of custom kinds. */
export const variedObjects = (): BaseObject[] => [...baseObjects(), ...documents('custom-objects.yaml')];

function documents(file: string): BaseObject[] {
  const source = readFileSync(new URL(`./${file}`, import.meta.url), 'utf8');
  return parseAllDocuments(source).map((document) => document.toJS() as BaseObject);
}

const GROUP = 'conformance.example.com';

const text = { type: 'string' };
const object = (properties: object, more: object = {}) => ({ type: 'object', properties, ...more });
const list = (items: object, more: object = {}) => ({ type: 'array', items, ...more });
const keyed = (items: object, ...keys: string[]) =>
  list(items, { 'x-kubernetes-list-type': 'map', 'x-kubernetes-list-map-keys': keys });

/** A custom kind whose fields have every way in which an apply merges. */
const WIDGET = object({
  ports: keyed(
    object(
      {
        port: { type: 'integer' },
        protocol: { ...text, default: 'UDP' },
        name: text,
        tags: list(text, { 'x-kubernetes-list-type': 'set' }),
      },
      { required: ['port'] },
    ),
    'port',
    'protocol',
  ),
  rules: keyed(
    object({ name: text, weight: { type: 'integer', default: 5 } }, { required: ['name'] }),
    'name',
  ),
  flags: keyed(object({ on: { type: 'boolean', default: false }, text }), 'on'),
  names: list(text, { 'x-kubernetes-list-type': 'set' }),
  numbers: list({ type: 'integer' }, { 'x-kubernetes-list-type': 'set' }),
  steps: list(object({ name: text })),
  labels: { type: 'object', additionalProperties: text },
  selector: { type: 'object', additionalProperties: text, 'x-kubernetes-map-type': 'atomic' },
  nested: object({ inner: object({ value: text }) }),
  limits: { type: 'object', additionalProperties: { 'x-kubernetes-int-or-string': true } },
  free: { type: 'object', 'x-kubernetes-preserve-unknown-fields': true },
  maybe: { ...text, nullable: true },
});

/** The custom kinds of custom-objects.yaml, and the least object of each. */
export const DEFINITIONS = [
  {
    body: {
      apiVersion: 'apiextensions.k8s.io/v1',
      kind: 'CustomResourceDefinition',
      metadata: { name: `widgets.${GROUP}` },
      spec: {
        group: GROUP,
        scope: 'Namespaced',
        names: { plural: 'widgets', singular: 'widget', kind: 'Widget', listKind: 'WidgetList' },
        versions: [
          {
            name: 'v1',
            served: true,
            storage: true,
            schema: { openAPIV3Schema: object({ spec: WIDGET }) },
          },
        ],
      },
    },
    probe: { apiVersion: `${GROUP}/v1`, kind: 'Widget', metadata: { name: 'probe' } } as BaseObject,
  },
];

/**
 * Returns the collection's path of an object in the namespace default. Throws Error for a kind that is not
 * served.
 */
export function pathOf(object: BaseObject): string {
  if (object.kind === 'Widget') return `/apis/${GROUP}/v1/namespaces/default/widgets`;
  const kind = KINDS.find(
    (one) =>
      (one.group === '' ? one.version : `${one.group}/${one.version}`) === object.apiVersion &&
      one.kind === object.kind,
  );
  if (!kind) throw new Error(`${object.apiVersion} ${object.kind} is not served`);
  const prefix = kind.group === '' ? `/api/${kind.version}` : `/apis/${kind.group}/${kind.version}`;
  return kind.namespaced ? `${prefix}/namespaces/default/${kind.plural}` : `${prefix}/${kind.plural}`;
}
