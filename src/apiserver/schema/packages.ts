import * as appsV1 from './generated/apps-v1.ts';
import * as authenticationV1 from './generated/authentication-v1.ts';
import * as authorizationV1 from './generated/authorization-v1.ts';
import * as autoscalingV1 from './generated/autoscaling-v1.ts';
import * as autoscalingV2 from './generated/autoscaling-v2.ts';
import * as batchV1 from './generated/batch-v1.ts';
import * as certificatesV1 from './generated/certificates-v1.ts';
import * as coordinationV1 from './generated/coordination-v1.ts';
import * as coreV1 from './generated/core-v1.ts';
import * as discoveryV1 from './generated/discovery-v1.ts';
import * as eventsV1 from './generated/events-v1.ts';
import * as metaV1 from './generated/meta-v1.ts';
import * as networkingV1 from './generated/networking-v1.ts';
import * as nodeV1 from './generated/node-v1.ts';
import * as policyV1 from './generated/policy-v1.ts';
import * as rbacV1 from './generated/rbac-v1.ts';
import * as schedulingV1 from './generated/scheduling-v1.ts';
import * as storageV1 from './generated/storage-v1.ts';
import { createTypeRegistry, type TypePackage, type TypeRegistry } from './type-schema.ts';

/** The packages of the API, of which `./generated` holds one module each (see tools/schema). */
export const PACKAGES: readonly TypePackage[] = [
  { name: 'core.v1', apiVersion: 'v1', openapi: 'io.k8s.api.core.v1', ...coreV1 },
  { name: 'apps.v1', apiVersion: 'apps/v1', openapi: 'io.k8s.api.apps.v1', ...appsV1 },
  {
    name: 'authentication.v1',
    apiVersion: 'authentication.k8s.io/v1',
    openapi: 'io.k8s.api.authentication.v1',
    ...authenticationV1,
  },
  {
    name: 'authorization.v1',
    apiVersion: 'authorization.k8s.io/v1',
    openapi: 'io.k8s.api.authorization.v1',
    ...authorizationV1,
  },
  {
    name: 'autoscaling.v1',
    apiVersion: 'autoscaling/v1',
    openapi: 'io.k8s.api.autoscaling.v1',
    ...autoscalingV1,
  },
  {
    name: 'autoscaling.v2',
    apiVersion: 'autoscaling/v2',
    openapi: 'io.k8s.api.autoscaling.v2',
    ...autoscalingV2,
  },
  { name: 'batch.v1', apiVersion: 'batch/v1', openapi: 'io.k8s.api.batch.v1', ...batchV1 },
  {
    name: 'certificates.v1',
    apiVersion: 'certificates.k8s.io/v1',
    openapi: 'io.k8s.api.certificates.v1',
    ...certificatesV1,
  },
  {
    name: 'coordination.v1',
    apiVersion: 'coordination.k8s.io/v1',
    openapi: 'io.k8s.api.coordination.v1',
    ...coordinationV1,
  },
  {
    name: 'discovery.v1',
    apiVersion: 'discovery.k8s.io/v1',
    openapi: 'io.k8s.api.discovery.v1',
    ...discoveryV1,
  },
  { name: 'events.v1', apiVersion: 'events.k8s.io/v1', openapi: 'io.k8s.api.events.v1', ...eventsV1 },
  {
    name: 'networking.v1',
    apiVersion: 'networking.k8s.io/v1',
    openapi: 'io.k8s.api.networking.v1',
    ...networkingV1,
  },
  { name: 'node.v1', apiVersion: 'node.k8s.io/v1', openapi: 'io.k8s.api.node.v1', ...nodeV1 },
  { name: 'policy.v1', apiVersion: 'policy/v1', openapi: 'io.k8s.api.policy.v1', ...policyV1 },
  { name: 'rbac.v1', apiVersion: 'rbac.authorization.k8s.io/v1', openapi: 'io.k8s.api.rbac.v1', ...rbacV1 },
  {
    name: 'scheduling.v1',
    apiVersion: 'scheduling.k8s.io/v1',
    openapi: 'io.k8s.api.scheduling.v1',
    ...schedulingV1,
  },
  { name: 'storage.v1', apiVersion: 'storage.k8s.io/v1', openapi: 'io.k8s.api.storage.v1', ...storageV1 },
  {
    name: 'meta.v1',
    apiVersion: 'meta.k8s.io/v1',
    openapi: 'io.k8s.apimachinery.pkg.apis.meta.v1',
    ...metaV1,
  },
];

/** A registry of every type that the server describes. */
export function createApiTypes(): TypeRegistry {
  return createTypeRegistry(PACKAGES);
}

/** Descriptions by type and field of a package; a type's own is under the empty name. */
export type Descriptions = Readonly<Record<string, Readonly<Record<string, string>>>>;

// Written out one by one, so that a bundler sees every module.
const DESCRIPTIONS: Readonly<Record<string, () => Promise<{ readonly descriptions: string }>>> = {
  'core.v1': () => import('./generated/core-v1.descriptions.ts'),
  'apps.v1': () => import('./generated/apps-v1.descriptions.ts'),
  'authentication.v1': () => import('./generated/authentication-v1.descriptions.ts'),
  'authorization.v1': () => import('./generated/authorization-v1.descriptions.ts'),
  'autoscaling.v1': () => import('./generated/autoscaling-v1.descriptions.ts'),
  'autoscaling.v2': () => import('./generated/autoscaling-v2.descriptions.ts'),
  'batch.v1': () => import('./generated/batch-v1.descriptions.ts'),
  'certificates.v1': () => import('./generated/certificates-v1.descriptions.ts'),
  'coordination.v1': () => import('./generated/coordination-v1.descriptions.ts'),
  'discovery.v1': () => import('./generated/discovery-v1.descriptions.ts'),
  'events.v1': () => import('./generated/events-v1.descriptions.ts'),
  'networking.v1': () => import('./generated/networking-v1.descriptions.ts'),
  'node.v1': () => import('./generated/node-v1.descriptions.ts'),
  'policy.v1': () => import('./generated/policy-v1.descriptions.ts'),
  'rbac.v1': () => import('./generated/rbac-v1.descriptions.ts'),
  'scheduling.v1': () => import('./generated/scheduling-v1.descriptions.ts'),
  'storage.v1': () => import('./generated/storage-v1.descriptions.ts'),
  'meta.v1': () => import('./generated/meta-v1.descriptions.ts'),
};

/** Loads what the fields of a package mean: text that only OpenAPI documents need. */
export async function loadDescriptions(packageName: string): Promise<Descriptions> {
  const module = await DESCRIPTIONS[packageName]?.();
  return module ? (JSON.parse(module.descriptions) as Descriptions) : {};
}
