/** Lists of objects that server-side apply merges: their `x-kubernetes-list-map-keys`. Others are replaced whole. */
const KEYS: Readonly<Record<string, readonly string[]>> = {
  containers: ['name'],
  initContainers: ['name'],
  ephemeralContainers: ['name'],
  volumes: ['name'],
  volumeMounts: ['mountPath'],
  volumeDevices: ['devicePath'],
  env: ['name'],
  imagePullSecrets: ['name'],
  hostAliases: ['ip'],
  topologySpreadConstraints: ['topologyKey', 'whenUnsatisfiable'],
  resourceClaims: ['name'],
  schedulingGates: ['name'],
  ownerReferences: ['uid'],
  conditions: ['type'],
  podIPs: ['ip'],
};

/** Lists of plain values that are sets. */
const SETS = new Set(['finalizers', 'podCIDRs']);

/** How a list merges: its key fields, "set", or null when it is replaced. `path`: FieldsV1 elements above it. */
export function listKeys(field: string, path: readonly string[]): readonly string[] | 'set' | null {
  if (SETS.has(field)) return 'set';
  if (field === 'ports') {
    const inContainer = path.some((element) => element === 'f:containers' || element === 'f:initContainers');
    if (inContainer) return ['containerPort', 'protocol'];
    return path.length === 1 && path[0] === 'f:spec' ? ['port', 'protocol'] : null;
  }
  return KEYS[field] ?? null;
}
