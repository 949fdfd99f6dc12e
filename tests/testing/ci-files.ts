import { readFileSync } from 'node:fs';
import { join, resolve } from 'node:path';
import { parse } from 'yaml';

/** The repository's action for GitHub, and the examples for CI systems. */

const ROOT = resolve(import.meta.dirname, '..', '..');
const read = (file: string) => readFileSync(join(ROOT, file), 'utf8');

export interface ActionStep {
  readonly name?: string;
  readonly id?: string;
  readonly shell?: string;
  readonly env?: Readonly<Record<string, string>>;
  readonly run?: string;
}

export interface Action {
  readonly name: string;
  readonly description: string;
  readonly inputs: Readonly<Record<string, { readonly description: string; readonly default: string }>>;
  readonly outputs: Readonly<Record<string, { readonly value: string }>>;
  readonly runs: { readonly using: string; readonly steps: readonly ActionStep[] };
}

export const action = (): Action => parse(read('action.yml')) as Action;

/** Returns the scripts of each example. */
export function exampleScripts(): Readonly<Record<string, readonly string[]>> {
  const github = parse(read('examples/ci/github-workflow.yml')) as {
    readonly jobs: Readonly<Record<string, { readonly steps: readonly ActionStep[] }>>;
  };
  const gitlab = parse(read('examples/ci/gitlab-ci.yml')) as Readonly<
    Record<string, { readonly script: readonly string[] }>
  >;
  const container = JSON.parse(read('examples/ci/devcontainer/devcontainer.json')) as {
    readonly postCreateCommand: string;
    readonly postStartCommand: string;
  };
  return {
    'action.yml': action().runs.steps.flatMap(({ run }) => run ?? []),
    'examples/ci/github-workflow.yml': Object.values(github.jobs).flatMap(({ steps }) =>
      steps.flatMap(({ run }) => run ?? []),
    ),
    'examples/ci/gitlab-ci.yml': Object.values(gitlab).flatMap(({ script }) => script),
    'examples/ci/devcontainer/devcontainer.json': [container.postCreateCommand, container.postStartCommand],
  };
}
