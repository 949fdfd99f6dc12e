import { parseQuantity } from '../../kube/quantity.ts';
import { selects } from '../../kube/selector.ts';
import type { Node, PersistentVolume, PersistentVolumeClaim } from '../../kube/types.ts';
import { matchesTerm } from '../node-selection.ts';
import { classOf } from './claims.ts';

/** Reports whether the volume's claimRef names this claim, or would accept it: a manual one has no uid yet. */
export function isBoundTo(volume: PersistentVolume, claim: PersistentVolumeClaim): boolean {
  const reference = volume.spec?.claimRef;
  if (!reference) return false;
  const { name, namespace, uid } = claim.metadata ?? {};
  if (reference.name !== name || reference.namespace !== namespace) return false;
  return !reference.uid || reference.uid === uid;
}

/** Reports whether pods on the node can use the volume. */
export function reachesNode(volume: PersistentVolume, node: Node): boolean {
  const terms = volume.spec?.nodeAffinity?.required?.nodeSelectorTerms;
  return !terms || terms.some((term) => matchesTerm(term, node));
}

const storageOf = (amounts: Readonly<Record<string, string>> | undefined): number =>
  parseQuantity(amounts?.['storage'] ?? '0') || 0;

/** Returns why the volume does not satisfy the claim; null if it does. */
export function mismatch(volume: PersistentVolume, claim: PersistentVolumeClaim): string | null {
  if (storageOf(volume.spec?.capacity) < storageOf(claim.spec?.resources?.requests)) {
    return 'requested PV is too small';
  }
  if (classOf(volume) !== classOf(claim)) return 'storageClassName does not match';
  if ((volume.spec?.volumeAttributesClassName ?? '') !== (claim.spec?.volumeAttributesClassName ?? ''))
    return 'volumeAttributesClassName does not match';
  if ((volume.spec?.volumeMode ?? 'Filesystem') !== (claim.spec?.volumeMode ?? 'Filesystem')) {
    return 'incompatible volumeMode';
  }
  const modes = volume.spec?.accessModes ?? [];
  if (!(claim.spec?.accessModes ?? []).every((mode) => modes.includes(mode)))
    return 'incompatible accessMode';
  return null;
}

export interface MatchOptions {
  /** Only volumes that pods on this node can use. */
  readonly node?: Node;
  /** The claim waits for its first consumer: only a volume that is reserved for it is eligible. */
  readonly onlyReserved?: boolean;
  /** Volumes assigned to other claims of the same pod. */
  readonly taken?: ReadonlySet<string>;
}

/**
 * Finds the volume for a claim: one that is reserved for it, else the smallest that is free and satisfies it
 * (upstream's FindMatchingVolume). Pure.
 */
export function findVolume(
  claim: PersistentVolumeClaim,
  volumes: Iterable<PersistentVolume>,
  { node, onlyReserved, taken }: MatchOptions = {},
): PersistentVolume | null {
  const selector = claim.spec?.selector;
  let smallest: PersistentVolume | null = null;
  for (const volume of volumes) {
    if (volume.metadata?.deletionTimestamp !== undefined) continue;
    if (taken?.has(volume.metadata?.name ?? '')) continue;
    if (mismatch(volume, claim) !== null) continue;
    if (node && !reachesNode(volume, node)) continue;
    if (volume.spec?.claimRef) {
      if (isBoundTo(volume, claim)) return volume;
      continue;
    }
    if (onlyReserved || volume.status?.phase !== 'Available') continue;
    if (selector && !selects(selector, volume.metadata?.labels)) continue;
    if (!smallest || storageOf(volume.spec?.capacity) < storageOf(smallest.spec?.capacity)) smallest = volume;
  }
  return smallest;
}
