/**
 * The commands that the bundle also has as one file each, with all that they load: a start reads one file instead of a
 * hundred, which takes half of the time. Each adds megabytes to the bundle, so these are the ones whose start is waited for.
 */
export const IN_ONE_FILE: Readonly<Record<string, string>> = {
  agent: './agent.cjs',
  'control-plane': './control-plane.cjs',
  echo: './echo.cjs',
  mode: './mode.cjs',
  'pod-runtime': './pod-runtime.cjs',
  run: './run.cjs',
  supervise: './supervise.cjs',
  up: './up.cjs',
};
