import type { AuthorizationAttributes, Authorizer, Decision } from './authorizer.ts';
import { parseRule } from './bootstrap-policy.ts';
import { CLUSTER_ROLES } from './generated/bootstrap-policy.ts';
import type { NodeGraph } from './node-graph.ts';
import { ruleAllows } from './policy-rule.ts';

const NODES_GROUP = 'system:nodes';
const NODE_PREFIX = 'system:node:';
const NODE_RULES = (CLUSTER_ROLES.find(({ name }) => name === 'system:node')?.rules ?? []).map(parseRule);

/** Returns the node whose agent a user is; null for every other user. */
export function nodeOf(user: { readonly name: string; readonly groups: readonly string[] }): string | null {
  return user.name.startsWith(NODE_PREFIX) && user.groups.includes(NODES_GROUP)
    ? user.name.slice(NODE_PREFIX.length)
    : null;
}

/**
 * Decides for the agents of nodes: they may read only secrets, config maps, claims and volumes that pods of their node
 * refer to, or that every node may read (shared-reads.ts), and only their own Node and Lease. Source: upstream's plugin/pkg/auth/authorizer/node; the rights
 * themselves are those of the cluster role system:node.
 */
export function createNodeAuthorizer(graph: NodeGraph): Authorizer {
  return {
    authorize(attributes) {
      const node = nodeOf(attributes.user);
      if (node === null) return noOpinion('');
      if (attributes.isResourceRequest) {
        const special = specialResource(graph, node, attributes);
        if (special) return special;
      }
      return NODE_RULES.some((rule) => ruleAllows(rule, attributes)) ? allow : noOpinion('');
    },
    rulesFor: (user) =>
      nodeOf(user) === null
        ? { resourceRules: [], nonResourceRules: [], incomplete: false }
        : {
            resourceRules: [],
            nonResourceRules: [],
            incomplete: true,
            evaluationError: 'node authorizer does not support user rule resolution',
          },
  };
}

const allow: Decision = { verdict: 'allow', reason: '' };
const noOpinion = (reason: string): Decision => ({ verdict: 'noOpinion', reason });
const READS = new Set(['get', 'list', 'watch']);

/** Decides about resources of which a node may use only some objects; returns null for all others. */
function specialResource(
  graph: NodeGraph,
  node: string,
  attributes: AuthorizationAttributes,
): Decision | null {
  const { resource, apiGroup, verb, namespace, subresource } = attributes;
  const name = attributes.name || selectedName(attributes);
  const key = `${namespace}/${name}`;
  switch (apiGroup === '' ? resource : `${resource}.${apiGroup}`) {
    case 'secrets':
      return readReferenced(
        node,
        attributes,
        () =>
          graph.refers(node, 'secrets', key) ||
          graph.refersToVolumeSecret(node, key) ||
          graph.isShared('secrets', key),
      );
    case 'configmaps':
      return readReferenced(
        node,
        attributes,
        () => graph.refers(node, 'configmaps', key) || graph.isShared('configmaps', key),
      );
    case 'resourceclaims.resource.k8s.io':
      return getReferenced(node, attributes, () => graph.refers(node, 'resourceclaims.resource.k8s.io', key));
    case 'persistentvolumeclaims':
      if (subresource === 'status') {
        if (verb !== 'get' && verb !== 'update' && verb !== 'patch')
          return noOpinion('can only get/update/patch this type');
        return related(node, name, graph.refers(node, 'persistentvolumeclaims', key));
      }
      return getReferenced(node, attributes, () => graph.refers(node, 'persistentvolumeclaims', key));
    case 'persistentvolumes':
      return getReferenced(node, attributes, () => graph.refersToVolume(node, `/${name}`));
    case 'serviceaccounts':
      if (subresource === 'token') {
        if (verb !== 'create') return noOpinion('can only create tokens for individual service accounts');
        return related(node, name, graph.refers(node, 'serviceaccounts', key));
      }
      return getReferenced(node, attributes, () => graph.refers(node, 'serviceaccounts', key));
    case 'volumeattachments.storage.k8s.io':
      return getReferenced(node, attributes, () => false);
    case 'leases.coordination.k8s.io':
      return ownLease(node, attributes);
    case 'csinodes.storage.k8s.io':
      return ownCsiNode(node, attributes);
    case 'nodes':
      return ownNode(node, attributes);
    case 'pods':
      return ownPods(graph, node, attributes);
    case 'resourceslices.resource.k8s.io':
      return ownSlices(node, attributes);
    default:
      return null;
  }
}

function related(node: string, name: string, found: boolean): Decision {
  if (name === '') return noOpinion('No Object name found');
  return found ? allow : noOpinion(`no relationship found between node '${node}' and this object`);
}

function getReferenced(node: string, attributes: AuthorizationAttributes, found: () => boolean): Decision {
  if (attributes.verb !== 'get') return noOpinion('can only get individual resources of this type');
  if (attributes.subresource !== '') return noOpinion('cannot get subresource');
  return related(node, attributes.name, attributes.name !== '' && found());
}

function readReferenced(node: string, attributes: AuthorizationAttributes, found: () => boolean): Decision {
  if (!READS.has(attributes.verb)) return noOpinion('can only read resources of this type');
  if (attributes.subresource !== '') return noOpinion('cannot read subresource');
  if (attributes.namespace === '') return noOpinion('can only read namespaced object of this type');
  const name = attributes.name || selectedName(attributes);
  return related(node, name, name !== '' && found());
}

/** Returns the name to which a list or watch is restricted by its field selector; '': to none. */
function selectedName({ verb, fieldSelector = '' }: AuthorizationAttributes): string {
  if (verb !== 'list' && verb !== 'watch') return '';
  return /(?:^|,)metadata\.name==?([^,=!]+)/.exec(fieldSelector)?.[1] ?? '';
}

function ownLease(node: string, { verb, namespace, name }: AuthorizationAttributes): Decision {
  if (!['get', 'create', 'update', 'patch', 'delete'].includes(verb))
    return noOpinion('can only get, create, update, patch, or delete a node lease');
  if (namespace !== 'kube-node-lease')
    return noOpinion('can only access leases in the "kube-node-lease" system namespace');
  // A creation has no lease name in its path; NodeRestriction checks the name.
  if (verb !== 'create' && name !== node)
    return noOpinion('can only access node lease with the same name as the requesting node');
  return allow;
}

function ownCsiNode(node: string, { verb, name, subresource }: AuthorizationAttributes): Decision {
  if (!['get', 'create', 'update', 'patch', 'delete'].includes(verb))
    return noOpinion('can only get, create, update, patch, or delete a CSINode');
  if (subresource !== '') return noOpinion('cannot authorize CSINode subresources');
  if (verb !== 'create' && name !== node)
    return noOpinion('can only access CSINode with the same name as the requesting node');
  return allow;
}

function ownNode(node: string, attributes: AuthorizationAttributes): Decision | null {
  const { verb, name, subresource, fieldSelector } = attributes;
  if (subresource !== '' || !READS.has(verb) || name === node) return null;
  // A list or watch of one object by its name is authorized for this object.
  if (name === '' && verb !== 'get' && selects(fieldSelector, 'metadata.name', node)) return null;
  return noOpinion(
    `node '${node}' cannot read ${name === '' ? 'all nodes' : `'${name}'`}, only its own Node object`,
  );
}

function ownPods(graph: NodeGraph, node: string, attributes: AuthorizationAttributes): Decision | null {
  const { verb, namespace, name, subresource, fieldSelector } = attributes;
  if (subresource !== '' || !READS.has(verb)) return null;
  if (verb === 'get') return related(node, name, graph.runs(node, `${namespace}/${name}`));
  return selects(fieldSelector, 'spec.nodeName', node)
    ? null
    : noOpinion('can only list/watch pods with spec.nodeName field selector');
}

function ownSlices(node: string, { verb, fieldSelector }: AuthorizationAttributes): Decision | null {
  if (verb !== 'list' && verb !== 'watch' && verb !== 'deletecollection') return null;
  return selects(fieldSelector, 'spec.nodeName', node)
    ? null
    : noOpinion('can only list/watch/deletecollection resourceslices with nodeName field selector');
}

/** Reports whether a field selector requires this value of a field. */
function selects(selector: string | undefined, field: string, value: string): boolean {
  return (selector ?? '')
    .split(',')
    .some((part) => part === `${field}=${value}` || part === `${field}==${value}`);
}
