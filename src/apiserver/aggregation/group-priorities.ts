import { ownMember } from '../../lib/own-member.ts';

/** Priorities of upstream's own groups (pkg/controlplane/apiserver/aggregator.go): clients prefer higher ones. */
const GROUPS: Readonly<Record<string, number>> = {
  '': 18_000,
  'apiregistration.k8s.io': 18_000,
  apps: 17_800,
  'events.k8s.io': 17_750,
  'authentication.k8s.io': 17_700,
  'authorization.k8s.io': 17_600,
  autoscaling: 17_500,
  batch: 17_400,
  'certificates.k8s.io': 17_300,
  'networking.k8s.io': 17_200,
  policy: 17_100,
  'rbac.authorization.k8s.io': 17_000,
  'storage.k8s.io': 16_800,
  'admissionregistration.k8s.io': 16_700,
  'apiextensions.k8s.io': 16_700,
  'scheduling.k8s.io': 16_600,
  'coordination.k8s.io': 16_500,
  'node.k8s.io': 16_300,
  'discovery.k8s.io': 16_200,
  'resource.k8s.io': 15_900,
  'flowcontrol.apiserver.k8s.io': 15_800,
};
/** Priority of the groups of custom resources. */
const CUSTOM_GROUP = 1000;

/** Returns upstream's priority of a group that this server serves. */
export const groupPriority = (group: string): number => ownMember(GROUPS, group) ?? CUSTOM_GROUP;

export const isBuiltinGroup = (group: string): boolean => Object.hasOwn(GROUPS, group);
