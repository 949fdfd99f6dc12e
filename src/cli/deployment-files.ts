import { chartFiles } from './chart-files.ts';
import { kustomizeFiles } from './kustomize-files.ts';

/** Returns the files below deploy/, rendered from the objects that `fairlead manifests` prints: path → text. */
export function deploymentFiles(): ReadonlyMap<string, string> {
  return new Map([
    ...[...kustomizeFiles()].map(([path, text]): [string, string] => [`kustomize/${path}`, text]),
    ...[...chartFiles()].map(([path, text]): [string, string] => [`helm/fairlead/${path}`, text]),
  ]);
}
