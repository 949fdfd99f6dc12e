import type { Informer } from '../kube/informer.ts';
import { isLater } from '../kube/resource-version.ts';
import type { EndpointSlice } from '../kube/types.ts';

/** The versions of the EndpointSlices that the informer has reported, and that the kernel has. */
export interface SliceVersions {
  latest(): string;
  /** Notes that the kernel has a version. */
  programmed(version: string): void;
  /** Null: none. */
  latestProgrammed(): string | null;
  close(): void;
}

export function followVersions(slices: Informer<EndpointSlice>): SliceVersions {
  let latest = '';
  let programmed: string | null = null;
  const note = ({ metadata }: EndpointSlice) => {
    const version = metadata?.resourceVersion ?? '';
    if (latest === '' || isLater(version, latest)) latest = version;
  };
  const close = slices.handle({ onAdd: note, onUpdate: note, onDelete: note });
  return {
    latest: () => latest,
    programmed(version) {
      const isNewer = programmed === null || isLater(version, programmed);
      if (version !== '' && isNewer) programmed = version;
    },
    latestProgrammed: () => programmed,
    close,
  };
}
