import { randomUUID } from 'node:crypto';
import type { MayDial } from '../kube/dial-check.ts';
import { createCertificateRequests } from './admission/certificate-requests.ts';
import { createCertificatePlugins } from './admission/certificates.ts';
import { createDefaultIngressClass } from './admission/default-ingress-class.ts';
import { defaultTolerationSeconds } from './admission/default-tolerations.ts';
import type { ExpressionPrograms } from './admission/expression-check.ts';
import { createLimitRanger } from './admission/limit-ranger.ts';
import { createNamespaceLifecycle } from './admission/namespace-lifecycle.ts';
import { createNodeRestriction } from './admission/node-restriction.ts';
import type { AdmissionPlugin } from './admission/plugin.ts';
import { createPodSecurity } from './admission/pod-security/pod-security.ts';
import { createMutatingPolicies } from './admission/policies/mutating-policy.ts';
import { followPolicyStatus, type PolicyStore } from './admission/policies/policy-status.ts';
import { createValidatingPolicies } from './admission/policies/validating-policy.ts';
import { createPriorityPlugin } from './admission/priority.ts';
import { createReinvokedPlugins } from './admission/reinvocation.ts';
import { createResourceQuota, type QuotaStore } from './admission/resource-quota.ts';
import { mutate } from './admission/run.ts';
import { createRuntimeClassPlugin } from './admission/runtime-class.ts';
import { createServiceAccountPlugin } from './admission/service-account.ts';
import { taintNewNodes } from './admission/taint-new-nodes.ts';
import { createServiceResolver } from './admission/webhooks/service-resolver.ts';
import { createWebhookClient } from './admission/webhooks/webhook-client.ts';
import {
  createMutatingWebhooks,
  createValidatingWebhooks,
  type WebhookOptions,
} from './admission/webhooks/webhooks.ts';
import { createBootstrapTokenAuthenticator } from './authentication/bootstrap-token-authenticator.ts';
import { createCertificateAuthenticator } from './authentication/certificate-authenticator.ts';
import { createImpersonator } from './authentication/impersonation.ts';
import { createTokenAuthenticator } from './authentication/token-authenticator.ts';
import { fillTokenSecrets } from './authentication/token-secrets.ts';
import { type Authorizer, createAlwaysAllow, unionAuthorizer } from './authorization/authorizer.ts';
import { reconcileBootstrapPolicy } from './authorization/bootstrap-policy.ts';
import { createEscalationCheck } from './authorization/escalation.ts';
import type { GraphSource } from './authorization/graph-source.ts';
import { createMastersAuthorizer } from './authorization/masters.ts';
import { createNodeAuthorizer } from './authorization/node-authorizer.ts';
import { createNodeGraph } from './authorization/node-graph.ts';
import { createRbac } from './authorization/rbac.ts';
import type { SharedReads } from './authorization/shared-reads.ts';
import type { Kind } from './kind.ts';
import type { ApiObject } from './object.ts';
import type { ObjectView } from './object-view.ts';
import type { Security, ServerParts } from './services.ts';

/** How requests are authorized: by roles and nodes' relations, or everything allowed for every authenticated user. */
export type AuthorizationMode = 'RBAC' | 'AlwaysAllow';

export interface SecurityOptions {
  readonly authorization: AuthorizationMode;
  /** New pods receive their service account's token as files. */
  readonly mountTokens: boolean;
  /** Certificate of the cluster's authority, PEM, with which pods verify the API server. */
  readonly authority: string;
  /** What agents of all nodes may read. Absent: nothing but what their pods refer to. */
  readonly sharedReads?: SharedReads;
  /** Shared with validation. */
  readonly programs: ExpressionPrograms;
  readonly mayDial: MayDial;
}

export interface RunningSecurity extends Security {
  /** Creates the default roles, and starts to fill token secrets. Call it when the namespaces exist. */
  start(): void;
  close(): void;
}

/** Builds authentication, impersonation, authorization and the admission plugins in upstream's order. */
export function createSecurity(parts: ServerParts, options: SecurityOptions): RunningSecurity {
  const view = objectView(parts);
  const graph = createNodeGraph(graphSource(parts, view), options.sharedReads ?? null);
  const rbac = createRbac(view);
  const authorizer: Authorizer =
    options.authorization === 'AlwaysAllow'
      ? createAlwaysAllow()
      : unionAuthorizer([createMastersAuthorizer(), createNodeAuthorizer(graph), rbac]);
  const webhookClient = createWebhookClient(createServiceResolver(view, parts.random), options.mayDial);
  const { requests: programs, policies, mutations } = options.programs;
  const complete = (object: ApiObject) => {
    parts.schema.prune(object.apiVersion, object.kind, object, null);
    parts.schema.complete(object);
  };
  const webhooks: WebhookOptions = {
    view,
    registry: parts.registry,
    client: webhookClient,
    programs,
    authorizer,
    complete,
    randomUuid: randomUUID,
    logger: parts.logger,
  };
  const mutating: AdmissionPlugin[] = [
    createNamespaceLifecycle(view),
    taintNewNodes,
    createServiceAccountPlugin(view, parts.clock, () => parts.resources.suffix(), options),
    createNodeRestriction(view, authorizer),
    createPriorityPlugin(view),
    defaultTolerationSeconds,
    createRuntimeClassPlugin(view),
    createDefaultIngressClass(view),
    createCertificateRequests(parts.clock),
    ...createCertificatePlugins(authorizer),
    createLimitRanger(view),
  ];
  const ends: (() => void)[] = [() => graph.close(), () => webhookClient.close()];
  return {
    authenticators: [
      createCertificateAuthenticator(),
      createBootstrapTokenAuthenticator(view, parts.clock),
      createTokenAuthenticator(parts.tokens),
    ],
    impersonator: createImpersonator(authorizer),
    authorizer,
    admission: [
      ...mutating,
      createReinvokedPlugins(
        [
          createMutatingPolicies({
            view,
            registry: parts.registry,
            programs: policies,
            mutations,
            authorizer,
            schema: parts.schema,
            complete,
            logger: parts.logger,
          }),
          createMutatingWebhooks(webhooks),
        ],
        (attributes) => mutate(mutating, attributes),
      ),
      ...(options.authorization === 'RBAC' ? [createEscalationCheck(view, rbac, authorizer)] : []),
      createPodSecurity(view),
      createValidatingPolicies({ view, registry: parts.registry }, policies, authorizer),
      createValidatingWebhooks(webhooks),
      // Last: its reservations are used unless the write itself fails.
      createResourceQuota(quotaStore(parts, view)),
    ] satisfies AdmissionPlugin[],
    start() {
      parts.store.batch(() => reconcileBootstrapPolicy(policyWriter(parts, view)));
      ends.push(
        fillTokenSecrets(secretStore(parts, view), parts.tokens, options.authority, (task) => {
          parts.clock.after(0, () => guarded(parts, 'failed to fill a token secret', task));
        }),
      );
      ends.push(
        followPolicyStatus(
          policyStore(parts, view),
          parts.registry,
          (apiVersion, kind) => parts.schema.patchSchema(apiVersion, kind),
          policies,
          (task) => {
            parts.clock.after(0, () => guarded(parts, 'failed to write the status of a policy', task));
          },
        ),
      );
    },
    close() {
      for (const end of ends) end();
    },
  };
}

function objectView({ store }: ServerParts): ObjectView {
  return {
    get: (collection, key) => store.get(collection, key)?.object,
    list: (collection, namespace) => store.list(collection, namespace).map(({ object }) => object),
  };
}

const listener =
  ({ store }: ServerParts): GraphSource['listen'] =>
  (collection, changed) =>
    store.listen(collection, ({ before, after }) => changed(before?.object ?? null, after?.object ?? null));

const graphSource = (parts: ServerParts, view: ObjectView): GraphSource => ({
  ...view,
  listen: listener(parts),
});

function kindOf({ registry }: ServerParts, collection: string): Kind {
  const found = registry
    .all()
    .find(({ kind, stored }) => stored && kind.collection === collection && !kind.view);
  if (!found) throw new Error(`no kind is stored in ${collection}`);
  return found.kind;
}

function policyWriter(parts: ServerParts, view: ObjectView) {
  const { resources } = parts;
  return {
    get: view.get,
    create(collection: string, object: ApiObject) {
      resources.create(kindOf(parts, collection), object.metadata.namespace ?? '', object);
    },
    update(collection: string, object: ApiObject) {
      const { namespace = '', name = '' } = object.metadata;
      resources.update(kindOf(parts, collection), namespace, name, () => structuredClone(object));
    },
    delete(collection: string, key: string) {
      const [namespace = '', name = ''] = splitKey(key);
      resources.delete(kindOf(parts, collection), namespace, name, {});
    },
  };
}

function splitKey(key: string): [string, string] {
  const slash = key.indexOf('/');
  return [key.slice(0, slash), key.slice(slash + 1)];
}

function quotaStore(parts: ServerParts, view: ObjectView): QuotaStore {
  return {
    ...view,
    setUsed({ metadata }, used) {
      const { namespace = '', name = '' } = metadata;
      parts.resources.update(
        kindOf(parts, 'resourcequotas'),
        namespace,
        name,
        (quota) => ({ ...quota, status: { ...(quota['status'] as object), used: { ...used } } }),
        { part: 'status' },
      );
    },
  };
}

const secretStore = (parts: ServerParts, view: ObjectView) => ({
  ...view,
  listen: listener(parts),
  update(secret: ApiObject) {
    const { namespace = '', name = '' } = secret.metadata;
    parts.resources.update(kindOf(parts, 'secrets'), namespace, name, () => structuredClone(secret));
  },
  remove({ metadata }: ApiObject) {
    parts.resources.delete(kindOf(parts, 'secrets'), metadata.namespace ?? '', metadata.name ?? '', {});
  },
});

const policyStore = (parts: ServerParts, view: ObjectView): PolicyStore => ({
  ...view,
  listen: listener(parts),
  setStatus({ metadata }, status) {
    parts.resources.update(
      kindOf(parts, 'validatingadmissionpolicies.admissionregistration.k8s.io'),
      '',
      metadata.name ?? '',
      (policy) => ({ ...policy, status: { ...(policy['status'] as object | undefined), ...status } }),
      { part: 'status' },
    );
  },
});

/** Runs a background task; a failure ends only that task. */
function guarded({ logger }: ServerParts, message: string, task: () => void): void {
  try {
    task();
  } catch (error) {
    logger.error({ err: error }, message);
  }
}
