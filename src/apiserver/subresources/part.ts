import type { Subresource } from '../services.ts';
import type { Part } from '../store-requests.ts';
import { getObject } from '../verbs/get.ts';
import { patchPart } from '../verbs/patch.ts';
import { updatePart } from '../verbs/update.ts';

/** Builds a subresource that reads and changes one part of an object: status, resize, ephemeralcontainers. */
function partSubresource(name: string, part: Part): Subresource {
  return {
    name,
    kind: null,
    handlers: { get: getObject, patch: patchPart(part), update: updatePart(part) },
  };
}

export const STATUS = partSubresource('status', 'status');
export const EPHEMERAL_CONTAINERS = partSubresource('ephemeralcontainers', 'ephemeralcontainers');
export const RESIZE = partSubresource('resize', 'resize');

/** Approval or denial of a certificate request. */
export const APPROVAL = partSubresource('approval', 'approval');

/** A namespace's finalizers, which protect it until its content is deleted. */
export const FINALIZE: Subresource = {
  name: 'finalize',
  kind: null,
  handlers: { update: updatePart('finalize') },
};
